"""Group a fleet: assess its nodes, merge and group them, and choose a toolkit for each group.

In: inventory, facts, packages, configuration. Out: a `GroupedFleet`. First step of a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.extension import Members, first_answer
from fleetbuild.models import PYTORCH, Config, Facts, Inventory, Target
from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import MergedTargets
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.eligibility import Eligibility, assess_nodes, assess_target
from fleetbuild.plan.decide.groups import DraftGroup, group_members, node_targets
from fleetbuild.plan.decide.packages import Package, cuda_floors, versions_of
from fleetbuild.plan.decide.wheels.builders import choose_builders
from fleetbuild.toolchains.toolkits import (
    Toolkit,
    choose_toolkit,
    pytorch_variant,
)

Problems = Mapping[str, Problem]  # by node, or by named target


class GroupedFleet(Frozen):
    """Eligibility of nodes, and their groups with a toolkit each. No index has a say in it.

    In a plan for other members than nodes, these take the place of nodes.
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
    members: Members | None = None,
    blocked: Problems | None = None,
) -> GroupedFleet:
    """Return the groups of this fleet, or of the `members` that its nodes build for.

    `blocked` has the problems of nodes or members to leave out.
    """
    if members:
        machines = members.facts
        eligibility = {name: assess_target(machines[name], packages, config) for name in machines}
        preferred = {name for names in members.builders.values() for name in names}
    else:
        machines = facts
        eligibility = assess_nodes(inventory, facts, packages, config)
        preferred = {*builders, *(node.name for node in inventory.nodes if node.builder)}
    eligibility |= _mark_blocked(eligibility, blocked or {})
    targets = node_targets(eligibility, machines)
    merged = MergedTargets(targets=targets)
    if not members:
        merged = _merged(targets, eligibility, facts, packages, config) or merged
    groups = group_members(merged.targets, eligibility, machines, packages, config)
    if members:
        groups = tuple(_without_nodes(group, members) for group in groups)
    groups, problems = _with_toolkits(
        groups, packages, eligibility, facts=facts, preferred=sorted(preferred), config=config
    )
    eligibility |= _mark_blocked(eligibility, problems)
    return GroupedFleet(
        eligibility=eligibility, groups=groups, merged=merged, preferred=tuple(sorted(preferred))
    )


def _merged(
    targets: Mapping[str, Target],
    eligibility: Mapping[str, Eligibility],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> MergedTargets | None:
    """Return what an extension made of these targets, if one did."""
    features = {name: eligibility[name].features for name in targets}
    merged = first_answer(lambda each: each.merge(targets, features, facts, packages, config))
    if merged is None and (key := config.grouping.merges):
        raise ConfigError(
            f"No extension of this fleetbuild merges groups, as grouping.{key} asks.",
            f"Remove grouping.{key.partition(':')[0]}, or install fleetbuild with its extensions.",
        )
    return merged


def _without_nodes(group: DraftGroup, members: Members) -> DraftGroup:
    """Return a group without nodes, for whose first member these nodes build."""
    builders = members.builders[min(group.members)]
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
