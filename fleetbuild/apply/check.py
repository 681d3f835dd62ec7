"""The first stage: is this plan still the right one, and what of it is left to be done?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetbuild.apply.context import Progress, Run, StoredFile
from fleetbuild.apply.pending import (
    BuildAssignment,
    NoBuilder,
    builder_candidates,
    choose_builder,
    initial_results,
    key_of,
    pending_wheels,
    result_from_plan,
    results_of_failed_wheels,
    wheel_identity,
)
from fleetbuild.errors import BlockedError, StalePlanError
from fleetbuild.models import Node, Plan, PlannedWheel, WheelResult
from fleetbuild.text import fold


def check(run: Run, progress: Progress) -> Progress:
    """Probe again, refuse what no longer holds, and find what is left to be done."""
    with run.stage("check", "Is the plan still right?"):
        _refuse_without_lock(run.plan)
        facts = run.tools.probe(_nodes(run), run.on_event)
        _refuse_stale(run, run.tools.differences(run.plan, facts))
        progress = replace(progress, facts=facts, nodes=initial_results(run.plan, facts))
        progress = _assign_builds(run, progress)
        _refuse_missing_supplies(progress)
        if sentence := run.tools.labels.prepare():
            run.tell("label", "warning", sentence)
    _report_results(run, progress)
    return progress


def _refuse_without_lock(plan: Plan) -> None:
    if plan.lock != "complete":
        problem = f" ({plan.lock_problem})" if plan.lock_problem else ""
        raise BlockedError(
            f"The plan has no lock of what is to be installed{problem}, so it cannot be applied.",
            f"Plan again where a package index can be reached: fleetbuild plan {plan.inventory}",
        )


def _nodes(run: Run) -> list[Node]:
    known = {node.name: node for node in run.inventory.nodes}
    wanted = [name for name in run.plan.nodes if result_from_plan(run.plan, name) is None]
    lost = [name for name in wanted if name not in known]
    if lost:
        raise StalePlanError(
            f"The plan is for {fold(lost)}, which the inventory no longer has.",
            f"Plan again: fleetbuild plan {run.plan.inventory}",
        )
    # A strong machine may build for others without being one of them.
    helpers = {
        name
        for group in run.plan.groups
        for wheel in group.wheels
        for name in builder_candidates(wheel)
    }
    return [known[name] for name in known if name in helpers.union(wanted)]


def _refuse_stale(run: Run, differences: Sequence[str]) -> None:
    if differences:
        raise StalePlanError(
            "The fleet is not the one that was planned for: " + " ".join(differences),
            f"Plan again and look at what changes: fleetbuild plan {run.plan.inventory}",
        )


def _assign_builds(run: Run, progress: Progress) -> Progress:
    """Take from the store what it has, and give each other wheel to a builder."""
    stored_wheels: dict[str, StoredFile] = {}
    wheels: dict[str, WheelResult] = {}
    orders: list[BuildAssignment] = []
    running = run.journal.left_running()
    for group, wheel in pending_wheels(run.plan, progress.nodes):
        key = key_of(wheel)
        if stored := run.tools.wheels.find(wheel):
            stored_wheels[key] = stored
            wheels[key] = reused(wheel, stored)
            continue
        if wheel.published:
            continue  # nobody builds it: it is fetched
        _refuse_gone(run, wheel)
        builder = choose_builder(wheel, progress.facts, running.get(key))
        if isinstance(builder, NoBuilder):
            wheels[key] = _not_built(wheel, builder)
        else:
            orders.append(BuildAssignment(wheel=wheel, group=group.name, node=builder))
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(
        progress, nodes=nodes, wheels=wheels, stored_wheels=stored_wheels, orders=tuple(orders)
    )


def _refuse_gone(run: Run, wheel: PlannedWheel) -> None:
    if wheel.action == "reuse":
        raise StalePlanError(
            f"The plan reuses {wheel.package} {wheel.wheel_version}, and the store no longer has"
            " it.",
            f"Plan again: fleetbuild plan {run.plan.inventory}",
        )


def reused(wheel: PlannedWheel, stored: StoredFile) -> WheelResult:
    """The result of a wheel that need not be built."""
    return WheelResult(
        state="reused", **wheel_identity(wheel), file=str(stored.path), sha256=stored.sha256
    )


def _not_built(wheel: PlannedWheel, why: NoBuilder) -> WheelResult:
    return WheelResult(
        **wheel_identity(wheel),
        state="failed",
        reason=why.reason,
        fix="Bring one of them back and apply again, or plan again without them.",
    )


def _refuse_missing_supplies(progress: Progress) -> None:
    wants = [
        f"{order.group} ({order.wheel.package}): {want}"
        for order in progress.orders
        for want in order.wheel.requires.to_supply
    ]
    if wants:
        raise BlockedError(
            "Nothing was built, for something has to be supplied first. " + " ".join(wants),
            "Supply it, or run with --limit on the other groups, and plan again.",
        )


def _report_results(run: Run, progress: Progress) -> None:
    for fate in progress.nodes.values():
        if fate.state == "unreachable":
            state = "unreachable"
        elif fate.state == "up_to_date":
            state = "ok"
        else:
            state = "skipped"
        run.tell(
            "check",
            state,
            fate.reason or fate.state.replace("_", " "),
            node=fate.node,
            group=fate.group,
            fix=fate.fix or "",
        )
