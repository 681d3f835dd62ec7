"""Between build and audit, confirm: build each wheel again on another node (build.confirm: 2).

In: the wheels that were just built. Out: for each, the second build, which the audit compares with
the first. One compromised builder can then not decide alone what a wheel contains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fleetbuild.apply.build import build
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.pending import (
    BuildAssignment,
    NoBuilder,
    choose_builder,
    key_of,
    results_of_failed_wheels,
)
from fleetbuild.models import WheelResult


class _Second(NamedTuple):
    first: BuildAssignment
    second: BuildAssignment | NoBuilder


def confirm(run: Run, progress: Progress) -> Progress:
    """Build each wheel that was just built a second time; a wheel without a second build fails."""
    if run.plan.confirm < 2:
        return progress
    pairs = {
        key_of(assignment.wheel): _Second(assignment, _second(progress, assignment))
        for assignment in progress.assignments
        if progress.wheels[key_of(assignment.wheel)].state == "built"
    }
    seconds = [pair.second for pair in pairs.values()]
    again = tuple(second for second in seconds if isinstance(second, BuildAssignment))
    for each in again:
        run.tell("build", "progress", f"built again on {each.node}, to compare", group=each.group)
    done = build(run, replace(progress, assignments=again))
    ended = (
        {key_of(assignment.wheel): assignment for assignment in done.assignments} if again else {}
    )
    wheels, confirmations = dict(progress.wheels), dict(progress.confirmations)
    for key, pair in pairs.items():
        result = done.wheels[key] if key in ended else None
        if result and result.state == "built":
            confirmations[key] = ended[key], result
        else:
            wheels[key] = _not_confirmed(run, wheels[key], pair, result)
    lost = {name: node for name, node in done.nodes.items() if node.state == "unreachable"}
    nodes = {**progress.nodes, **lost}
    nodes |= results_of_failed_wheels(run.plan, nodes, wheels)
    return replace(
        progress,
        wheels=wheels,
        nodes=nodes,
        confirmations=confirmations,
        facts=done.facts,
        failed_builders=done.failed_builders,
    )


def _second(progress: Progress, first: BuildAssignment) -> BuildAssignment | NoBuilder:
    """Return the same build for another of the wheel's builders."""
    others = tuple(
        builder.node
        for builder in first.wheel.builders
        if builder.node not in (first.node, *progress.failed_builders)
    )
    if not others:
        return NoBuilder(f"No planned builder but {first.node} is available.")
    wheel = first.wheel.model_copy(update={"built_on": others[0], "fallbacks": others[1:]})
    node = choose_builder(wheel, progress.facts)
    if isinstance(node, NoBuilder):
        return node
    return BuildAssignment(wheel=wheel, group=first.group, node=node, confirms=first.node)


def _not_confirmed(
    run: Run, built: WheelResult, pair: _Second, second: WheelResult | None
) -> WheelResult:
    if isinstance(pair.second, NoBuilder):
        reason, log = pair.second.reason, None
    else:
        reason = (second.reason if second else None) or "The build did not end."
        log = second.log if second else None
    reason = f"{built.built_on} built it, but no other node did (build.confirm: 2): {reason}"
    fix = (second.fix if second else None) or (
        "Make another builder of the group reachable and apply again, or set build.confirm: 1."
    )
    about = {"group": pair.first.group, "package": built.package, "fix": fix}
    run.tell("build", "failed", reason, **about)
    return built.model_copy(update={"state": "failed", "reason": reason, "fix": fix, "log": log})
