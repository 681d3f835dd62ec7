"""Group a fleet: assess its nodes, merge and group them, and choose a toolkit for each group.

In: inventory, facts, packages, configuration. Out: a `GroupedFleet`. First step of a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.models import PYTORCH, Config, Facts, Inventory
from fleetbuild.models._base import Frozen
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.compatibility.toolkits import (
    Toolkit,
    choose_toolkit,
    pytorch_variant,
)
from fleetbuild.plan.decide.eligibility import Eligibility, assess_nodes, assess_target
from fleetbuild.plan.decide.groups import DraftGroup, group_members, node_targets
from fleetbuild.plan.decide.merging.costs import toolkit_conflicts
from fleetbuild.plan.decide.merging.tradeoffs import MergedTargets, merge_targets
from fleetbuild.plan.decide.named_targets import NamedTarget
from fleetbuild.plan.decide.packages import Package, cuda_floors, versions_of
from fleetbuild.plan.decide.wheels.builders import choose_builders

Problems = Mapping[str, Problem]  # by node, or by named target


class GroupedFleet(Frozen):
    """Eligibility of nodes, and their groups with a toolkit each. No index has a say in it.

    In a plan for named targets, these take the place of nodes.
    """

    eligibility: dict[str, Eligibility]
    groups: tuple[DraftGroup, ...]
    merged: MergedTargets
    preferred: tuple[str, ...]  # nodes that are named as builders


def group_fleet(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
    *,
    builders: Sequence[str] = (),
    named: Sequence[NamedTarget] = (),
    blocked: Problems | None = None,
) -> GroupedFleet:
    """Return the groups of this fleet, or of `named` targets that its nodes build for.

    `blocked` has the problems of nodes or targets to leave out.
    """
    if named:
        members = {target.name: target.facts for target in named if target.facts}
        eligibility = {name: assess_target(members[name], packages, config) for name in members}
        preferred = {name for target in named for name in target.builders}
    else:
        members = dict(facts)
        eligibility = assess_nodes(inventory, facts, packages, config)
        preferred = {*builders, *(node.name for node in inventory.nodes if node.builder)}
    eligibility |= _mark_blocked(eligibility, blocked or {})
    targets = node_targets(eligibility, members)
    merged = MergedTargets(targets=targets)
    if not named:  # each named target stays as it is
        recipes = [package.recipe for package in packages]
        sharing = toolkit_conflicts(targets, facts, packages, config)
        merged = merge_targets(targets, eligibility, recipes, config, sharing)
    groups = group_members(merged.targets, eligibility, members, packages, config)
    if named:
        groups = tuple(_without_nodes(group, named) for group in groups)
    groups, problems = _with_toolkits(
        groups, packages, eligibility, facts=facts, preferred=sorted(preferred), config=config
    )
    eligibility |= _mark_blocked(eligibility, problems)
    return GroupedFleet(
        eligibility=eligibility, groups=groups, merged=merged, preferred=tuple(sorted(preferred))
    )


def _without_nodes(group: DraftGroup, named: Sequence[NamedTarget]) -> DraftGroup:
    """Return a group of named targets: it has no nodes, and the nodes of its first target build."""
    builders = next(target.builders for target in named if target.name in group.members)
    return group.model_copy(update={"nodes": (), "builders": builders})


def _mark_blocked(
    eligibility: Mapping[str, Eligibility], problems: Problems
) -> dict[str, Eligibility]:
    return {
        name: eligibility[name].model_copy(update={"state": "blocked", **problem._asdict()})
        for name, problem in problems.items()
    }


def _with_toolkits(
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    eligibility: Mapping[str, Eligibility],
    *,
    facts: Mapping[str, Facts],
    preferred: Sequence[str],
    config: Config,
) -> tuple[tuple[DraftGroup, ...], dict[str, Problem]]:
    """Return the groups with their toolkits, and the problems of members that are blocked."""
    buildable: list[DraftGroup] = []
    problems: dict[str, Problem] = {}
    for group in groups:
        builders = choose_builders(group.target, [group], eligibility, facts, preferred)
        toolkit: Toolkit | Problem | None = builders.problem
        if toolkit is None and group.target.sms:
            toolkit = choose_toolkit(
                versions_of(packages),
                group.target.sms,
                group.target.python,
                [*group.members.values()],
                {name: facts[name].for_builds for name in builders.able},
                pin=config.cuda,
                floors=cuda_floors(packages),
            )
        if isinstance(toolkit, Problem):
            problems |= dict.fromkeys(group.members, toolkit)
        else:
            pytorch = pytorch_variant(toolkit) if PYTORCH in config.index else None
            buildable.append(group.model_copy(update={"toolkit": toolkit, "pytorch": pytorch}))
    return tuple(buildable), problems
