"""The parts of a plan for named targets: their states, and nodes that only build.

In: named targets, their groups, facts of nodes. Out: parts of the plan document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetbuild.extension import PlanBasis, node_fields
from fleetbuild.extensions.catalogue.targets import NamedTarget
from fleetbuild.models import Config, Facts, Node, PlannedNode, PlannedTarget
from fleetbuild.models.node import SKIPPED
from fleetbuild.models.problem import Problem
from fleetbuild.plan.document.fingerprint import fingerprint

_ONLY_BUILDS = "This plan is for named targets: nodes only build."


def plan_fields(
    named: Sequence[NamedTarget],
    basis: PlanBasis,
    groups: Mapping[str, str],
    problems: Mapping[str, Problem],
) -> dict[str, Any]:
    """Return the fields of the plan that differ from the fields of a plan for nodes.

    `groups` and `problems` are by target.
    """
    builders = sorted({name for target in named for name in target.builders})
    return {
        "fingerprint": {name: fingerprint(basis.facts[name], None) for name in builders},
        "nodes": {
            node.name: _builder_node(node, basis.facts.get(node.name), basis.config)
            for node in sorted(basis.inventory.nodes, key=lambda node: node.name)
        },
        "targets": {
            target.name: _planned_target(
                target, groups.get(target.name), problems.get(target.name, target.problem)
            )
            for target in named
        },
    }


def _builder_node(node: Node, facts: Facts | None, config: Config) -> PlannedNode:
    fields_ = node_fields(node, config)
    if node.skip:
        return PlannedNode(state="skipped", reason=SKIPPED, **fields_)
    if facts is None or facts.state == "unreachable":
        known = facts or Facts(reason="it was not probed")
        return PlannedNode(state="unreachable", reason=known.reason, fix=known.fix, **fields_)
    return PlannedNode(state="skipped", reason=_ONLY_BUILDS, **fields_)


def _planned_target(
    target: NamedTarget, group: str | None, problem: Problem | None
) -> PlannedTarget:
    """Return the target's group, or why the target is blocked."""
    return PlannedTarget(
        state="blocked" if problem else "ok",
        group=group,
        reason=problem.reason if problem else None,
        fix=problem.fix if problem else None,
        builders=target.builders,
        refused=target.refused,
    )
