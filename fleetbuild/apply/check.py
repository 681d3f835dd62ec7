"""First stage, check: verify that the plan still matches the fleet, and find the pending work.

In: the plan and fresh facts. Out: results of nodes with nothing to do, stored wheels, and a build
assignment for each wheel that has to be built. Raises if the plan cannot be applied as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetbuild.ansible.silent_nodes import result_without_reply
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.hooks import check_hooks
from fleetbuild.apply.pending import (
    BuildAssignment,
    NoBuilder,
    choose_builder,
    initial_results,
    key_of,
    pending_wheels,
    result_from_plan,
    results_of_failed_wheels,
    wheel_identity,
)
from fleetbuild.errors import BlockedError, StalePlanError
from fleetbuild.models import Facts, Node, NodeResult, Plan, PlannedWheel, WheelResult
from fleetbuild.models.stored import StoredWheel
from fleetbuild.text import fold


def check(run: Run, progress: Progress) -> Progress:
    """Refuse a plan that no longer matches the fleet, and find the pending work.

    The nodes are probed again, but for a plan that was made of their facts just now.
    """
    with run.stage("check", "the plan"):
        _refuse_without_lock(run.plan)
        _refuse_revoked(run)
        check_hooks(run)
        nodes = _nodes(run)
        facts = run.probed or run.tools.probe(nodes, run.on_event)
        facts = {node.name: facts[node.name] for node in nodes}
        _tell_answers(run, facts if run.probed else {})
        _refuse_stale(run.tools.find_changes(run.plan, facts))
        progress = replace(progress, facts=facts, nodes=initial_results(run.plan, facts))
        _refuse_unsigned(run, progress)
        begun = run.journal.begun_builds()
        progress = _assign_builds(run, progress, begun)
        if without_root := _nodes_without_root(run, progress):
            progress = replace(progress, nodes={**progress.nodes, **without_root})
            progress = _assign_builds(run, progress, begun)
        _refuse_missing_supplies(progress, begun)
        if warning := run.tools.follower.prepare(installs=True):
            run.tell("label", "warning", warning)
    _report_results(run, progress)
    return progress


def _tell_answers(run: Run, facts: Mapping[str, Facts]) -> None:
    """Tell of each node that was asked before the run, as a probe tells of each that it asks."""
    for done, (name, known) in enumerate(facts.items(), 1):
        lost = known.state == "unreachable"
        state, reason = ("unreachable", known.reason or "") if lost else ("ok", "")
        about = {"node": name, "done": done, "total": len(facts)}
        run.tell("probe", state, reason, fix=known.fix or "" if lost else "", **about)


def _refuse_without_lock(plan: Plan) -> None:
    if plan.lock != "complete":
        problem = f" ({plan.lock_problem})" if plan.lock_problem else ""
        raise BlockedError(
            f"This plan has no dependency lock{problem}, so it cannot be applied.",
            "Plan again with access to a package index: fleetbuild plan INVENTORY",
        )


def _refuse_revoked(run: Run) -> None:
    if revoked := run.tools.revoked(run.plan):
        reasons = " ".join(dict.fromkeys(revoked.values()))
        raise StalePlanError(
            f"Since this plan was made, a wheel that it uses was revoked: {reasons}",
            "Plan again, with another version if needed: fleetbuild plan INVENTORY",
        )


def _nodes(run: Run) -> list[Node]:
    nodes = {node.name: node for node in run.inventory.nodes}
    names = [name for name in run.plan.nodes if result_from_plan(run.plan, name) is None]
    missing = [name for name in names if name not in nodes]
    if missing:
        raise StalePlanError(
            f"The plan contains {fold(missing)}, but the inventory no longer does.",
            "Plan again: fleetbuild plan INVENTORY",
        )
    # A builder need not be a member of the group that it builds for.
    helpers = {
        builder.node
        for group in run.plan.groups
        for wheel in group.wheels
        for builder in wheel.builders
    }
    return [nodes[name] for name in nodes if name in helpers.union(names)]


def _refuse_stale(differences: Sequence[str]) -> None:
    if differences:
        raise StalePlanError(
            "The fleet has changed since this plan was made: " + " ".join(differences),
            "Plan again and review the changes: fleetbuild plan INVENTORY",
        )


def _refuse_unsigned(run: Run, progress: Progress) -> None:
    names = [
        name
        for name, facts in progress.facts.items()  # of nodes to change, and of builders
        if name in run.plan.nodes and name not in progress.nodes and facts.requires_signature
    ]
    if names and run.tools.sign is None:
        raise BlockedError(
            f"Only signed releases are accepted by {fold(names)}"
            " (/etc/fleetbuild/allowed_signers), and signing.key is not set.",
            "Set signing.key in fleetbuild.yml to the SSH key of an allowed signer; then apply"
            " again.",
        )


def _assign_builds(run: Run, progress: Progress, begun: Mapping[str, str]) -> Progress:
    """Reuse the wheels in the store, and assign each other wheel to a builder."""
    stored_wheels: dict[str, StoredWheel] = {}
    wheels: dict[str, WheelResult] = {}
    assignments: list[BuildAssignment] = []
    running = run.journal.left_running()
    for group, wheel in pending_wheels(run.plan, progress.nodes):
        key = key_of(wheel)
        if stored := run.tools.wheels.find(wheel):
            stored_wheels[key] = stored
            wheels[key] = reused(wheel, stored)
            continue
        if wheel.published:
            continue  # the fetch stage downloads it
        _refuse_gone(wheel)
        builder = choose_builder(wheel, progress.facts, running.get(key), begun.get(key))
        if isinstance(builder, NoBuilder):
            wheels[key] = _not_built(wheel, builder)
        else:
            assignments.append(BuildAssignment(wheel=wheel, group=group.name, node=builder))
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(
        progress,
        nodes=nodes,
        wheels=wheels,
        stored_wheels=stored_wheels,
        assignments=tuple(assignments),
    )


def _refuse_gone(wheel: PlannedWheel) -> None:
    if wheel.action == "reuse":
        raise StalePlanError(
            f"The plan reuses {wheel.package} {wheel.wheel_version}, but the store no longer has an"
            " intact one.",
            "Plan again, and it is built: fleetbuild plan INVENTORY",
        )


def reused(wheel: PlannedWheel, stored: StoredWheel) -> WheelResult:
    """Return the result of a wheel that is taken from the store."""
    return WheelResult(
        state="reused", **wheel_identity(wheel), file=str(stored.path), sha256=stored.sha256
    )


def _not_built(wheel: PlannedWheel, why: NoBuilder) -> WheelResult:
    return WheelResult(
        **wheel_identity(wheel),
        state="failed",
        reason=why.reason,
        fix="Make one of these nodes reachable, or free space there, and apply again; or plan again"
        " without them.",
    )


def _nodes_without_root(run: Run, progress: Progress) -> dict[str, NodeResult]:
    """Return the results of nodes whose install needs root, which nobody can become there.

    They are tried before the first build, as their installs would fail hours later.
    """
    groups = run.plan.groups_by_node
    pending = groups.keys() - progress.nodes
    names = sorted(name for name in pending if progress.facts[name].needs_root)
    if not (names and progress.assignments):
        return {}
    hosts = run.tools.run_playbook("root.yml", limit=names, extravars={}, on_event=lambda _: None)
    return {
        name: result_without_reply(name, groups[name].name, hosts[name], None)
        for name in names
        if hosts[name].state != "ok"
    }


def _refuse_missing_supplies(progress: Progress, begun: Mapping[str, str]) -> None:
    """Refuse builds whose builder lacked something when the plan was made.

    Where a build has begun, only space can be lacking, and a part of it is used by that build.
    """
    missing = [
        f"{assignment.group} ({assignment.wheel.package}): {item}"
        for assignment in progress.assignments
        if begun.get(key_of(assignment.wheel)) != assignment.node
        for item in assignment.wheel.requires.to_supply
    ]
    if missing:
        raise BlockedError(
            "Nothing was built, because the builders lack requirements: " + " ".join(missing),
            "Install them, or use --limit to plan only the other groups; then plan again.",
        )


def _report_results(run: Run, progress: Progress) -> None:
    for result in progress.nodes.values():
        if result.state == "unreachable":
            state = "unreachable"
        elif result.state == "install_failed":
            state = "failed"
        elif result.state == "up_to_date":
            state = "ok"
        else:
            state = "skipped"
        run.tell(
            "check",
            state,
            result.reason or result.state.replace("_", " "),
            node=result.node,
            group=result.group,
            fix=result.fix or "",
        )
