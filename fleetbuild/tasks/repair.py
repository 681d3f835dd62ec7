"""Repair: install damaged or lost releases again, from the plan that installed them.

In: the plan, and the result of a verify. Out: the part of the plan that installs what is damaged;
then both results in one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fleetbuild.models import Installs, NodeResult, Plan, Result
from fleetbuild.planning.document.serialize import with_digest
from fleetbuild.state.directory import SavedResult, StateDir


def repair(
    verified: Result, plan: Plan | None, state: StateDir, carry_out: Callable[[Plan], Result]
) -> Result:
    """Apply the plan to the nodes whose release is damaged, and return both results in one."""
    last = state.last_result()
    names = _repairable(verified, plan, last)
    if plan is None or not names:
        return verified
    repaired = carry_out(part_of_plan(plan, names))
    if last is not None:  # `status` compares with the last apply, which was about more nodes
        state.save_result(_with(last.result, repaired.nodes), started=last.started)
    labels = {label.node: label for label in (*verified.labels, *repaired.labels)}
    return _with(verified, repaired.nodes).model_copy(
        update={
            "wheels": repaired.wheels,
            "manifests": repaired.manifests,
            "labels": tuple(labels.values()),
            "changed": repaired.changed,
            "seconds": round(verified.seconds + repaired.seconds, 3),
        }
    )


def _repairable(verified: Result, plan: Plan | None, last: SavedResult | None) -> list[str]:
    """Return the nodes whose damaged release this plan holds.

    A plan that was saved since would install another release: that is for `apply`.
    """
    if plan is None:
        return []
    left = {node.node: node.release_id for node in last.result.nodes} if last else {}
    planned = {name: group.release_id for name, group in plan.groups_by_node.items()}
    return [
        node.node
        for node in verified.nodes
        if node.damaged
        and node.node in planned
        and planned[node.node] == (node.release_id or left.get(node.node))
    ]


def part_of_plan(plan: Plan, names: Collection[str]) -> Plan:
    """Return the plan for these nodes alone."""
    groups = (
        group.model_copy(update={"nodes": members, "installs": Installs(install=members)})
        for group in plan.groups
        if (members := tuple(name for name in group.nodes if name in names))
    )
    return with_digest(
        plan.model_copy(
            update={
                "nodes": {name: node for name, node in plan.nodes.items() if name in names},
                "fingerprint": {
                    name: facts for name, facts in plan.fingerprint.items() if name in names
                },
                "groups": tuple(groups),
            }
        )
    )


def _with(result: Result, nodes: Collection[NodeResult]) -> Result:
    known = {node.node: node for node in result.nodes} | {node.node: node for node in nodes}
    return result.model_copy(update={"nodes": tuple(known.values())})
