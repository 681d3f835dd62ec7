"""The wheels of a plan: each is built once for its own target, however many groups it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.models import Facts, LockedFile, PlannedWheel, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.builders import (
    Builders,
    choose_builders,
    flags_for,
    jobs_on,
    requires_of,
)
from fleetbuild.planning.fates import Fate
from fleetbuild.planning.groups import DraftGroup, numbers
from fleetbuild.planning.keys import artifact_key, wheel_version
from fleetbuild.planning.lock import LockRequest, Locks, Source
from fleetbuild.planning.packages import Package
from fleetbuild.recipes import (
    Job,
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_settings,
)

StoreView = Mapping[str, str]  # artifact key -> the lowest libc floor of its stored wheels


class DraftWheel(Frozen):
    """A wheel before its build requirements are locked."""

    package: Package
    target: Target
    groups: tuple[str, ...]  # names of the groups that it serves
    builders: Builders


def draft_wheels(
    packages: Sequence[Package],
    groups: Sequence[DraftGroup],
    fates: Mapping[str, Fate],
    facts: Mapping[str, Facts],
    strong: Sequence[str],
) -> tuple[DraftWheel, ...]:
    """Every wheel that these groups need, once."""
    wheels: list[DraftWheel] = []
    for index, package in enumerate(packages):
        for target in dict.fromkeys(group.wheel_targets[index] for group in groups):
            serving = [group for group in groups if group.wheel_targets[index] == target]
            wheels.append(
                DraftWheel(
                    package=package,
                    target=target,
                    groups=tuple(group.name for group in serving),
                    builders=choose_builders(target, serving, fates, facts, strong),
                )
            )
    return tuple(wheels)


def build_request(
    wheel: DraftWheel, source: Source, facts: Mapping[str, Facts]
) -> LockRequest | None:
    """The question for the build requirements, for the machine that builds."""
    libc = facts[wheel.builders.first].libc
    if not source.build_requirements or libc is None:
        return None
    return LockRequest(
        requirements=source.build_requirements,
        python_version=plain(wheel.builders.version),
        python=wheel.target.python,
        arch=wheel.target.arch,
        libc=wheel.target.libc.model_copy(update={"floor": libc.version}),
    )


def plan_wheel(
    wheel: DraftWheel,
    facts: Mapping[str, Facts],
    locks: Locks,
    store: StoreView,
    *,
    blocked: str | None,
) -> PlannedWheel:
    """The wheel with its key, its builder and what is to be done. `blocked` says why not."""
    recipe, target, builders = wheel.package.recipe, wheel.target, wheel.builders
    source = locks.source(wheel.package.name)
    requirements, problem = _build_lock(wheel, source, facts, locks)
    key = None
    if source and source.sha256 and requirements is not None:
        key = artifact_key(
            recipe=recipe,
            package=wheel.package.name,
            version=wheel.package.version,
            target=target,
            source_sha256=source.sha256,
            build_lock=requirements,
        )
    if blocked or problem:
        action, reason = "blocked", blocked or problem or ""
    else:
        action, reason = _action(key, target, store)
    builder = facts[builders.first]
    job = Job(
        version=wheel.package.version,
        wheel_version=wheel_version(wheel.package.version, target),
        target=target,
        flags=flags_for(target, builders.order, facts),
    )
    return PlannedWheel(
        package=wheel.package.name,
        version=wheel.package.version,
        wheel_version=job.wheel_version,
        recipe=recipe.name,
        target=target,
        artifact_key=key,
        action=action,
        reason=reason,
        built_on=builders.first,
        fallbacks=builders.order[1:],
        build_pythons=builders.pythons,
        jobs=jobs_on(recipe, builder),
        cuda=job.cuda,
        environment=render_environment(recipe, job),
        config_settings=render_settings(recipe, job),
        files=render_files(recipe, job),
        patches={patch.file: patch.text for patch in patches_for(recipe, job)},
        requires=requires_of(recipe, builders.first, builder),
        source=source.file if source else None,
        source_path=source.path if source else None,
        build_dependencies=requirements or (),
        checks=render_checks(recipe, job),
        import_names=recipe.import_names,
    )


def build_problem(
    wheel: DraftWheel, facts: Mapping[str, Facts], locks: Locks
) -> tuple[str, str | None] | None:
    """Why the build requirements cannot be had, and the fix; None where they can."""
    source = locks.source(wheel.package.name)
    request = build_request(wheel, source, facts) if source else None
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
    request = build_request(wheel, source, facts)
    if request is None:
        return (), None
    if problem := build_problem(wheel, facts, locks):
        return None, problem[0]
    answer = locks[request]
    return (None if answer.problem else answer.wheels), None


def _action(key: str | None, target: Target, store: StoreView) -> tuple[str, str]:
    if key is None:
        return "build", "The lock is missing, so what the store has is unknown."
    stored = store.get(key)
    if stored is None:
        return "build", "The store has no such wheel yet."
    family = target.libc.family
    if numbers(stored) > numbers(target.libc.floor):
        return "build", (
            f"The stored wheel needs {family} {stored}, and this must run on "
            f"{family} {target.libc.floor}."
        )
    return "reuse", f"In the store, built for {family} {stored}."
