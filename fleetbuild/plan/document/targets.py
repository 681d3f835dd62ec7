"""The parts of a plan for named targets: their states, and nodes that only build.

In: named targets, the draft of their groups, facts of nodes. Out: parts of the plan document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetbuild.extension import node_fields
from fleetbuild.models import (
    Config,
    Facts,
    Inventory,
    Node,
    PlannedNode,
    PlannedTarget,
)
from fleetbuild.models.node import SKIPPED
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.named_targets import NamedTarget
from fleetbuild.plan.decide.wheels.draft import PlanDraft
from fleetbuild.plan.document.fingerprint import fingerprint

_ONLY_BUILDS = "This plan is for named targets: nodes only build."


def builder_nodes(
    inventory: Inventory, facts: Mapping[str, Facts], config: Config
) -> dict[str, PlannedNode]:
    """Return the nodes of a plan for named targets: some build, and nothing is installed."""
    return {
        node.name: _builder_node(node, facts.get(node.name), config)
        for node in sorted(inventory.nodes, key=lambda node: node.name)
    }


def _builder_node(node: Node, facts: Facts | None, config: Config) -> PlannedNode:
    fields_ = node_fields(node, config)
    if node.skip:
        return PlannedNode(state="skipped", reason=SKIPPED, **fields_)
    if facts is None or facts.state == "unreachable":
        known = facts or Facts(reason="it was not probed")
        return PlannedNode(state="unreachable", reason=known.reason, fix=known.fix, **fields_)
    return PlannedNode(state="skipped", reason=_ONLY_BUILDS, **fields_)


def builder_fingerprints(
    named: Sequence[NamedTarget], facts: Mapping[str, Facts]
) -> dict[str, dict[str, Any]]:
    """Return the fingerprint of each node that may build for a target."""
    builders = sorted({name for target in named for name in target.builders})
    return {name: fingerprint(facts[name], None) for name in builders}


def planned_target(
    named: NamedTarget, drafted: PlanDraft, problems: Mapping[str, Problem]
) -> PlannedTarget:
    """Return the target's group, or why the target is blocked."""
    name = named.name
    group = next((group.name for group in drafted.groups if name in group.members), None)
    reason, fix = named.reason, named.fix
    if group is not None and group in problems:
        reason, fix = problems[group]
    elif group is None and named.facts:
        reason, fix = drafted.eligibility[name].reason, drafted.eligibility[name].fix
    return PlannedTarget(
        state="blocked" if reason else "ok",
        group=group,
        reason=reason,
        fix=fix,
        builders=named.builders,
        refused=named.refused,
    )
