"""The draft of a plan: eligibility, groups and wheels, before dependencies are locked.

In: inventory, facts, packages, configuration. Out: a `GroupedFleet`, and a `PlanDraft` with the
`LockRequest`s that have to be resolved for it. Comes before `document.make_plan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from fleetbuild.models import PYTORCH, Config, Facts, Inventory, LockedFile
from fleetbuild.models._base import Frozen
from fleetbuild.models.problem import Problem
from fleetbuild.models.release import ENVIRONMENT_BYTES
from fleetbuild.plan.decide.compatibility.toolkits import (
    Toolkit,
    choose_toolkit,
    pytorch_variant,
)
from fleetbuild.plan.decide.eligibility import Eligibility, assess_nodes
from fleetbuild.plan.decide.groups import DraftGroup, group_nodes, libc_of, node_targets
from fleetbuild.plan.decide.merging.costs import toolkit_conflicts
from fleetbuild.plan.decide.merging.tradeoffs import MergedTargets, merge_targets
from fleetbuild.plan.decide.packages import Package, cuda_floors, versions_of
from fleetbuild.plan.decide.resolution import LockRequest, Locks
from fleetbuild.plan.decide.wheels.build_requirements import plain, static_metadata
from fleetbuild.plan.decide.wheels.builders import choose_builders
from fleetbuild.plan.decide.wheels.draft import DraftWheel, draft_wheels, published_in
from fleetbuild.plan.decide.wheels.published import PublishedChoices
from fleetbuild.text import version_key

NodeProblems = Mapping[str, Problem]  # by node


class GroupedFleet(Frozen):
    """Eligibility of nodes, and their groups with a toolkit each. No index has a say in it."""

    eligibility: dict[str, Eligibility]
    groups: tuple[DraftGroup, ...]
    merged: MergedTargets
    preferred: tuple[str, ...]  # nodes that are named as builders


class PlanDraft(GroupedFleet):
    """Groups and wheels, before dependencies are locked.

    `requests` has each group's request to the resolver.
    """

    wheels: tuple[DraftWheel, ...]
    requests: dict[str, LockRequest]


def group_fleet(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
    *,
    builders: Sequence[str] = (),
    blocked: NodeProblems | None = None,
) -> GroupedFleet:
    """Return the groups of this fleet. `blocked` names nodes to leave out."""
    recipes = [package.recipe for package in packages]
    eligibility = assess_nodes(inventory, facts, packages, config)
    eligibility |= _mark_blocked(eligibility, blocked or {})
    targets = node_targets(eligibility, facts)
    if any(node.stand_in for node in inventory.nodes):  # each named target stays as it is
        merged = MergedTargets(targets=targets)
    else:
        sharing = toolkit_conflicts(targets, facts, packages, config)
        merged = merge_targets(targets, eligibility, recipes, config, sharing)
    groups = group_nodes(merged.targets, facts, recipes, config)
    preferred = sorted({*builders, *(node.name for node in inventory.nodes if node.builder)})
    groups, blocked_nodes = choose_toolkits(
        groups, packages, eligibility, facts=facts, preferred=preferred, config=config
    )
    eligibility |= _mark_blocked(eligibility, blocked_nodes)
    return GroupedFleet(
        eligibility=eligibility, groups=groups, merged=merged, preferred=tuple(preferred)
    )


def draft_plan(
    fleet: GroupedFleet,
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    published: PublishedChoices = MappingProxyType({}),
) -> PlanDraft:
    """Return the draft for these groups. `published` names wheels to take instead of building."""
    eligibility = fleet.eligibility
    wheels = draft_wheels(
        packages, fleet.groups, eligibility, facts, fleet.preferred, published=published
    )
    groups = tuple(
        group.model_copy(
            update={
                "static_metadata": static_metadata(group, wheels),
                "published": published_in(group, wheels),
            }
        )
        for group in fleet.groups
    )
    return PlanDraft(
        eligibility=eligibility,
        groups=groups,
        merged=fleet.merged,
        preferred=fleet.preferred,
        wheels=wheels,
        requests={group.name: _lock_request(group, packages, eligibility) for group in groups},
    )


def _mark_blocked(
    eligibility: Mapping[str, Eligibility], problems: NodeProblems
) -> dict[str, Eligibility]:
    return {
        name: eligibility[name].model_copy(update={"state": "blocked", **problem._asdict()})
        for name, problem in problems.items()
    }


def _lock_request(
    group: DraftGroup, packages: Sequence[Package], eligibility: Mapping[str, Eligibility]
) -> LockRequest:
    """Return the request for a group's dependencies."""
    known = {each.name for each in group.static_metadata}
    known |= {re.split(r"\[|==", requirement)[0] for requirement in group.published}
    asked = [package for package in packages if package.name not in known]
    request = source_request(group, asked, eligibility)
    return request.model_copy(
        update={
            "requirements": tuple(sorted({*request.requirements, *group.published})),
            "static_metadata": group.static_metadata,
        }
    )


def source_request(
    group: DraftGroup, packages: Sequence[Package], eligibility: Mapping[str, Eligibility]
) -> LockRequest:
    """Return the request for the sources of these packages."""
    versions = [python.version for name in group.nodes if (python := eligibility[name].python)]
    return LockRequest(
        requirements=tuple(sorted(package.requirement for package in packages)),
        sources=tuple(sorted(package.name for package in packages)),
        python_version=plain(min(versions, key=version_key)),
        python=group.target.python,
        arch=group.target.arch,
        libc=group.target.libc,
        pytorch=group.pytorch,
    )


def nodes_blocking_dependencies(
    drafted: PlanDraft, facts: Mapping[str, Facts], locks: Locks
) -> dict[str, Problem]:
    """Return members that may be the only reason why their group has no dependencies: old libcs.

    The caller blocks them and groups again, so that the rest of the group is served.
    """
    old_libc_nodes: dict[str, Problem] = {}
    for group in drafted.groups:
        answer = locks[drafted.requests[group.name]]
        if answer.problem is None or answer.offline:
            continue
        oldest = [name for name in group.nodes if libc_of(facts[name]) == group.target.libc.floor]
        if len(oldest) < len(group.nodes):
            problem = Problem(answer.problem, answer.fix or "")
            old_libc_nodes.update(dict.fromkeys(oldest, problem))
    return old_libc_nodes


def least_space(files: Iterable[LockedFile]) -> int:
    """Return the bytes that a release of these files needs at least: unpacked, they are larger."""
    return ENVIRONMENT_BYTES + 2 * sum(file.size or 0 for file in files)


def nodes_without_space(
    drafted: PlanDraft, facts: Mapping[str, Facts], locks: Locks, config: Config
) -> dict[str, Problem]:
    """Return the nodes whose disk cannot hold the release, each with the reason and the fix.

    A node that has a release of this name may have this one already: the plan only warns of it.
    """
    path = config.install.path
    found: dict[str, Problem] = {}
    for group in drafted.groups:
        taken = [wheel.taken for wheel in drafted.wheels if group.name in wheel.groups]
        needed = least_space((*filter(None, taken), *locks.closures.get(group.name, ())))
        for name in group.nodes:
            known = facts[name]
            there = config.release in known.release or config.release in known.previous
            if not there and (lack := known.lacks_space(needed)):
                fix = (
                    f"Free space there (df -h {path}) or set another install.path; then plan again."
                )
                found[name] = Problem(f"The disk of {path} {lack} or more.", fix)
    return found


def choose_toolkits(
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    eligibility: Mapping[str, Eligibility],
    *,
    facts: Mapping[str, Facts],
    preferred: Sequence[str],
    config: Config,
) -> tuple[tuple[DraftGroup, ...], dict[str, Problem]]:
    """Return the groups with their toolkits, and the blocked nodes with their problems."""
    buildable: list[DraftGroup] = []
    blocked_nodes: dict[str, Problem] = {}
    for group in groups:
        builders = choose_builders(group.target, [group], eligibility, facts, preferred)
        if builders.problem:
            blocked_nodes |= dict.fromkeys(group.nodes, builders.problem)
            continue
        answer = _toolkit(group, packages, facts, builders.able, config.cuda)
        if isinstance(answer, Problem):
            blocked_nodes |= dict.fromkeys(group.nodes, answer)
        else:
            pytorch = pytorch_variant(answer) if PYTORCH in config.index else None
            buildable.append(group.model_copy(update={"toolkit": answer, "pytorch": pytorch}))
    return tuple(buildable), blocked_nodes


def _toolkit(
    group: DraftGroup,
    packages: Sequence[Package],
    facts: Mapping[str, Facts],
    builders: Sequence[str],
    pin: str | None,
) -> Toolkit | Problem | None:
    if not group.target.sms:
        return None
    return choose_toolkit(
        versions_of(packages),
        group.target.sms,
        group.target.python,
        [facts[name] for name in group.nodes],
        {name: facts[name].for_builds for name in builders},
        pin=pin,
        floors=cuda_floors(packages),
    )
