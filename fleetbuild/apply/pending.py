"""What is left to be done: questions about a plan, fresh facts and results so far. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fleetbuild.errors import BlockedError
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Facts,
    LockedFile,
    NodeResult,
    Plan,
    PlannedGroup,
    PlannedWheel,
    TargetLibc,
    WheelResult,
)
from fleetbuild.models.role_parameters import BuildSpec, Patch, Requirement
from fleetbuild.text import version_key

_CODE_FEATURES = frozenset().union(*(rung.features for rung in RUNGS.values()))
_FAILED_STATES = ("failed", "refused")


@dataclass(frozen=True)
class NoBuilder:
    """No member of the group can build now; `reason` is a sentence."""

    reason: str


@dataclass(frozen=True)
class BuildAssignment:
    """A wheel to be built, for a group, on a node."""

    wheel: PlannedWheel
    group: str
    node: str


def initial_results(plan: Plan, facts: Mapping[str, Facts]) -> dict[str, NodeResult]:
    """The nodes about which there is nothing to do, or nothing that can be done."""
    fates = {name: fate for name in plan.nodes if (fate := result_from_plan(plan, name))}
    for group in plan.groups:
        for name in group.nodes:
            if name not in fates and (fate := _result_from_facts(plan, group, name, facts[name])):
                fates[name] = fate
    return fates


def result_from_plan(plan: Plan, name: str) -> NodeResult | None:
    """What the plan itself says will not be done."""
    node = plan.nodes[name]
    if node.state == "ok":
        return None
    fix = node.fix
    if node.state == "unreachable":
        fix = fix or "Once it answers, plan again."
    return NodeResult(
        node=name, group=node.group, state=node.state, reason=node.reason, fix=fix or None
    )


def _result_from_facts(
    plan: Plan, group: PlannedGroup, name: str, facts: Facts
) -> NodeResult | None:
    if facts.state != "ok":
        return NodeResult(
            node=name,
            group=group.name,
            state="unreachable",
            reason=facts.reason,
            fix=facts.fix or "Once it answers, run the same apply again; what is done stays done.",
        )
    blocked = [wheel for wheel in group.wheels if wheel.action == "blocked"]
    if blocked:
        return NodeResult(node=name, group=group.name, state="blocked", reason=blocked[0].reason)
    if is_serving(plan, group, facts):
        return NodeResult(
            node=name, group=group.name, state="up_to_date", release_id=group.release_id
        )
    return None


def is_serving(plan: Plan, group: PlannedGroup, facts: Facts) -> bool:
    """Is the group's release the node's current one, and was it verified there?"""
    current = facts.release.get(plan.release)
    return current is not None and current.id == group.release_id and current.verified


def pending_nodes(group: PlannedGroup, fates: Collection[str]) -> tuple[str, ...]:
    """The nodes of a group whose fate is open."""
    return tuple(name for name in group.nodes if name not in fates)


def pending_groups(plan: Plan, fates: Collection[str]) -> Iterator[PlannedGroup]:
    """The groups in which something is to be done."""
    return (group for group in plan.groups if pending_nodes(group, fates))


def pending_wheels(
    plan: Plan, fates: Collection[str]
) -> Iterator[tuple[PlannedGroup, PlannedWheel]]:
    """Each wheel that an unfinished group needs, once, with the first group that needs it."""
    seen: set[str] = set()
    for group in pending_groups(plan, fates):
        for wheel in group.wheels:
            if key_of(wheel) not in seen:
                seen.add(key_of(wheel))
                yield group, wheel


def planned_wheels(plan: Plan) -> dict[str, PlannedWheel]:
    """The wheels of a plan by artifact key."""
    wheels = (wheel for group in plan.groups for wheel in group.wheels)
    return {wheel.artifact_key: wheel for wheel in wheels if wheel.artifact_key}


def pins_of(plan: Plan, wheel: PlannedWheel) -> list[str]:
    """The exact versions of what a wheel is built against, so that it goes with nothing else."""
    bases = map(planned_wheels(plan).__getitem__, wheel.built_against)
    return [f"{base.package}=={base.wheel_version}" for base in bases]


@dataclass(frozen=True)
class BuildPlace:
    """Where a wheel is built, and with which files: what differs between a node and a pod."""

    node: str | None
    python: str
    cache: str
    source: str
    source_sha256: str
    requirements: tuple[Requirement, ...]
    dest: str = ""


def build_spec(plan: Plan, wheel: PlannedWheel, place: BuildPlace) -> BuildSpec:
    """The parameters of a wheel's build, on a node and in a pod alike."""
    return BuildSpec.model_validate(
        {
            "package": wheel.package,
            "version": wheel.version,
            "key": key_of(wheel),
            "wheel_version": wheel.wheel_version,
            "environment": wheel.environment,
            "config_settings": wheel.config_settings,
            "files": wheel.files,
            "patches": [Patch(name=name, text=text) for name, text in wheel.patches.items()],
            "cuda": wheel.cuda or "",
            "gcc": wheel.build_gccs.get(place.node or "", ""),
            "pins": pins_of(plan, wheel),
            "bundle": wheel.libraries == "bundle",
            "jobs": wheel.jobs,
            "timeout": wheel.timeout_seconds,
            # The toolkit is no package of the distribution: the check before asked for it.
            "libraries": [name for name in wheel.requires.libraries if name != "cuda"],
            "source": place.source,
            "source_sha256": place.source_sha256,
            "requirements": place.requirements,
            "python": place.python,
            "cache": place.cache,
            "dest": place.dest,
        }
    )


def wheel_identity(wheel: PlannedWheel) -> dict[str, str]:
    """What every result of a wheel says of it."""
    return {
        "package": wheel.package,
        "wheel_version": wheel.wheel_version,
        "artifact_key": key_of(wheel),
    }


def key_of(wheel: PlannedWheel) -> str:
    """The artifact key; every wheel of a plan with a complete lock has one."""
    if wheel.artifact_key is None:
        raise _unlocked(wheel)
    return wheel.artifact_key


def source_of(wheel: PlannedWheel) -> LockedFile:
    """What a wheel is built from; every wheel of a plan with a complete lock has one."""
    if wheel.source is None:
        raise _unlocked(wheel)
    return wheel.source


def _unlocked(wheel: PlannedWheel) -> BlockedError:
    return BlockedError(
        f"The plan does not say what {wheel.package} {wheel.wheel_version} is built from.",
        "Plan again where a package index can be reached.",
    )


def builder_candidates(wheel: PlannedWheel) -> tuple[str, ...]:
    """The nodes that may build a wheel, in the plan's order."""
    return (*filter(None, [wheel.built_on]), *wheel.fallbacks)


def choose_builder(
    wheel: PlannedWheel, facts: Mapping[str, Facts], running_on: str | None = None
) -> str | NoBuilder:
    """Who builds: where the build was left running, else the first of the plan's that can."""
    planned = sorted(builder_candidates(wheel), key=lambda name: name != running_on)
    problems: dict[str, str] = {}
    for name in planned:
        problem = _why_not_builder(name, facts.get(name), wheel.target.libc)
        if problem is None:
            return name
        problems[name] = problem
    return NoBuilder("No node can build it now: " + "; ".join(problems.values()) + ".")


def _why_not_builder(name: str, facts: Facts | None, libc: TargetLibc) -> str | None:
    if facts is None or facts.state != "ok":
        return f"{name} is unreachable"
    if facts.libc is None or facts.libc.family != libc.family:
        return f"{name} does not have {libc.family}"
    if version_key(facts.libc.version) > version_key(libc.floor):
        return (
            f"{name} has {libc.family} {facts.libc.version},"
            f" newer than {libc.floor} of the group's oldest member"
        )
    return None


def results_of_failed_wheels(
    plan: Plan, fates: Mapping[str, NodeResult], wheels: Mapping[str, WheelResult]
) -> dict[str, NodeResult]:
    """The nodes that get nothing, since a wheel of their group was not built or was refused."""
    return {
        name: NodeResult(
            node=name,
            group=group.name,
            state="verify_failed" if lost.state == "refused" else "build_failed",
            reason=f"{lost.package} {lost.wheel_version}: {lost.reason}",
            fix=lost.fix,
        )
        for group in pending_groups(plan, fates)
        if (lost := _failed_wheel(group, wheels))
        for name in pending_nodes(group, fates)
    }


def _failed_wheel(group: PlannedGroup, wheels: Mapping[str, WheelResult]) -> WheelResult | None:
    results = (wheels.get(key_of(wheel)) for wheel in group.wheels)
    return next((wheel for wheel in results if wheel and wheel.state in _FAILED_STATES), None)


def canaries(group: PlannedGroup, facts: Mapping[str, Facts], count: int) -> tuple[str, ...]:
    """The weakest reachable members, which try a release before the others."""
    reachable = [name for name in group.nodes if facts[name].state == "ok"]
    if len(reachable) <= 1:
        return ()
    return tuple(sorted(reachable, key=lambda name: (*_strength(facts[name]), name))[:count])


def _strength(facts: Facts) -> tuple[int, tuple[int, ...], float]:
    # What kills a wheel comes first: missing instructions, then an old libc, then no memory.
    libc = version_key(facts.libc.version) if facts.libc else ()
    return len(_CODE_FEATURES & set(facts.features)), libc, facts.memory_gb or 0.0
