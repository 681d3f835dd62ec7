"""Pending work: which nodes, groups and wheels of a plan still need something done. No I/O.

In: a plan, fresh facts and the results so far. Out: results, pending nodes and wheels, builders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetbuild.errors import BlockedError
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
from fleetbuild.models.build_parameters import BuildSpec, SourcePatch
from fleetbuild.text import version_key

_FAILED_STATES = ("failed", "refused")


@dataclass(frozen=True)
class NoBuilder:
    """None of the planned builders can build the wheel now; `reason` is a sentence."""

    reason: str


@dataclass(frozen=True)
class BuildAssignment:
    """A wheel to build, the group it is for, and the node that builds it."""

    wheel: PlannedWheel
    group: str
    node: str


def initial_results(plan: Plan, facts: Mapping[str, Facts]) -> dict[str, NodeResult]:
    """Return the results of nodes that need no work or cannot be worked on."""
    if plan.targets:  # nodes only build, so a node has no result of its own
        return {}
    results = {name: result for name in plan.nodes if (result := result_from_plan(plan, name))}
    for group in plan.groups:
        for name in group.nodes:
            if name not in results and (
                result := _result_from_facts(plan, group, name, facts[name])
            ):
                results[name] = result
    return results


def result_from_plan(plan: Plan, name: str) -> NodeResult | None:
    """Return the result of a node that the plan leaves out, None if the plan includes it."""
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
            fix=facts.fix or "Once it answers, run the same apply again; finished work is kept.",
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
    """Return whether the group's release is current and verified on the node."""
    return facts.serves(plan.release, group.release_id)


def pending_nodes(group: PlannedGroup, results: Collection[str]) -> tuple[str, ...]:
    """Return the nodes of a group that have no result yet."""
    return tuple(name for name in group.nodes if name not in results)


def pending_groups(plan: Plan, results: Collection[str]) -> Iterator[PlannedGroup]:
    """Return the groups with pending nodes, and the groups of named targets, which have no nodes:
    only their wheels are built."""
    return (
        group
        for group in plan.groups
        if pending_nodes(group, results) or (plan.targets and not _is_blocked(group))
    )


def _is_blocked(group: PlannedGroup) -> bool:
    return any(wheel.action == "blocked" for wheel in group.wheels)


def pending_wheels(
    plan: Plan, results: Collection[str]
) -> Iterator[tuple[PlannedGroup, PlannedWheel]]:
    """Yield each wheel that a pending group needs, once, with the first group that needs it."""
    seen: set[str] = set()
    for group in pending_groups(plan, results):
        for wheel in group.wheels:
            if key_of(wheel) not in seen:
                seen.add(key_of(wheel))
                yield group, wheel


def pins_of(plan: Plan, wheel: PlannedWheel) -> list[str]:
    """Return exact requirements on the wheels that this wheel is built against."""
    bases = map(plan.wheels_by_key.__getitem__, wheel.built_against)
    return [f"{base.package}=={base.wheel_version}" for base in bases]


def build_spec(plan: Plan, wheel: PlannedWheel, node: str, **inputs: Any) -> BuildSpec:
    """Return the build parameters of a wheel on a node, or in a pod there.

    `inputs` are the parameters that differ between these: files, cache and isolation.
    """
    builder = wheel.builder(node)
    return BuildSpec.model_validate(
        {
            "package": wheel.package,
            "key": key_of(wheel),
            "wheel_version": wheel.wheel_version,
            "environment": wheel.environment,
            "config_settings": wheel.config_settings,
            "files": wheel.files,
            "patches": [SourcePatch(name=name, text=text) for name, text in wheel.patches.items()],
            "cuda": wheel.cuda or "",
            "gcc": builder.gcc,
            "container": builder.image,
            "pins": pins_of(plan, wheel),
            "bundle": wheel.libraries == "bundle",
            "jobs": builder.jobs,
            "python": builder.python,
            "timeout": wheel.timeout_seconds,
            # The CUDA toolkit is not a distribution package; the check stage has looked for it.
            "libraries": [name for name in wheel.requires.libraries if name != "cuda"],
            "tools": list(wheel.requires.tools),
            **inputs,
        }
    )


def wheel_identity(wheel: PlannedWheel) -> dict[str, str]:
    """Return the fields that identify a wheel in every result."""
    return {
        "package": wheel.package,
        "wheel_version": wheel.wheel_version,
        "artifact_key": key_of(wheel),
    }


def key_of(wheel: PlannedWheel) -> str:
    """Return the artifact key; every wheel of a plan with a complete lock has one."""
    if wheel.artifact_key is None:
        raise _unlocked(wheel)
    return wheel.artifact_key


def source_of(wheel: PlannedWheel) -> LockedFile:
    """Return the source of a wheel; every wheel of a plan with a complete lock has one."""
    if wheel.source is None:
        raise _unlocked(wheel)
    return wheel.source


def _unlocked(wheel: PlannedWheel) -> BlockedError:
    return BlockedError(
        f"This plan has no locked source for {wheel.package} {wheel.wheel_version}.",
        "Plan again with access to a package index.",
    )


def choose_builder(
    wheel: PlannedWheel,
    facts: Mapping[str, Facts],
    running_on: str | None = None,
    begun_on: str | None = None,
) -> str | NoBuilder:
    """Return the builder: the node where the build is running, else the first that can build.

    If each has too little space, the build goes on where it has begun and uses a part already.
    """
    planned = sorted(wheel.builders, key=lambda builder: builder.node != running_on)
    problems: dict[str, str] = {}
    for with_a_part in ((running_on,), (running_on, begun_on)):
        for builder in planned:
            name = builder.node
            needed = 0 if name in with_a_part else wheel.requires.disk_gb
            libc = None if builder.image else wheel.target.libc  # the image's counts
            problem = _why_not_builder(name, facts.get(name), libc, needed)
            if problem is None:
                return name
            problems[name] = problem
    return NoBuilder("No planned builder is available: " + "; ".join(problems.values()) + ".")


def _why_not_builder(
    name: str, facts: Facts | None, libc: TargetLibc | None, needed_gb: float
) -> str | None:
    if facts is None or facts.state != "ok":
        return f"{name} is unreachable"
    if libc and (facts.libc is None or facts.libc.family != libc.family):
        return f"{name} does not have {libc.family}"
    if libc and facts.libc and version_key(facts.libc.version) > version_key(libc.floor):
        return (
            f"{name} has {libc.family} {facts.libc.version},"
            f" newer than the group's oldest, {libc.floor}"
        )
    if facts.disk_gb is not None and facts.disk_gb < needed_gb:
        return (
            f"{name} has {facts.disk_gb:g} GB free in its build folder, and the build needs"
            f" {needed_gb:g} GB"
        )
    return None


def results_of_failed_wheels(
    plan: Plan, results: Mapping[str, NodeResult], wheels: Mapping[str, WheelResult]
) -> dict[str, NodeResult]:
    """Return the results of nodes whose group lacks a wheel that failed or was refused."""
    return {
        name: NodeResult(
            node=name,
            group=group.name,
            state="verify_failed" if failed.state == "refused" else "build_failed",
            reason=f"{failed.package} {failed.wheel_version}: {failed.reason}",
            fix=failed.fix,
        )
        for group in pending_groups(plan, results)
        if (failed := _failed_wheel(group, wheels))
        for name in pending_nodes(group, results)
    }


def _failed_wheel(group: PlannedGroup, wheels: Mapping[str, WheelResult]) -> WheelResult | None:
    results = (wheels.get(key_of(wheel)) for wheel in group.wheels)
    return next((wheel for wheel in results if wheel and wheel.state in _FAILED_STATES), None)
