"""The draft of a plan: fates, groups and wheels, and what has to be resolved for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fleetbuild.models import Config, Facts, Inventory
from fleetbuild.models._base import Frozen
from fleetbuild.planning.compatibility.toolkits import Toolkit, Unfit, choose_toolkit
from fleetbuild.planning.eligibility.assess import Eligibility, assess_nodes
from fleetbuild.planning.groups import DraftGroup, group_nodes, libc_of, node_targets
from fleetbuild.planning.merging.costs import one_toolkit
from fleetbuild.planning.merging.tradeoffs import Merged, merge_targets
from fleetbuild.planning.packages import Package, cuda_floors, versions_of
from fleetbuild.planning.resolution import LockRequest, Locks
from fleetbuild.planning.wheels.build_requirements import plain, stand_ins
from fleetbuild.planning.wheels.builders import choose_builders
from fleetbuild.planning.wheels.draft import DraftWheel, draft_wheels, published_in
from fleetbuild.planning.wheels.published import Choices
from fleetbuild.text import version_key

Blocked = Mapping[str, tuple[str, str]]  # node -> reason, fix


class PlanDraft(Frozen):
    """Fates, groups and wheels, before anything is locked."""

    fates: dict[str, Eligibility]
    groups: tuple[DraftGroup, ...]
    wheels: tuple[DraftWheel, ...]
    merged: Merged


def draft_plan(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
    *,
    builders: Sequence[str] = (),
    blocked: Blocked | None = None,
    published: Choices = MappingProxyType({}),
) -> PlanDraft:
    """The groups of this fleet. `blocked` names nodes that turned out to be impossible,
    `published` what others have built for a group."""
    recipes = [package.recipe for package in packages]
    lots = assess_nodes(inventory, facts, packages, config)
    lots |= _blocked(lots, blocked or {})
    targets = node_targets(lots, facts)
    sharing = one_toolkit(targets, facts, packages, config)
    merged = merge_targets(targets, lots, recipes, config, sharing)
    groups = group_nodes(merged.targets, facts, recipes, config)
    strong = sorted({*builders, *(node.name for node in inventory.nodes if node.builder)})
    groups, unfit = choose_toolkits(
        groups, packages, lots, facts=facts, strong=strong, config=config
    )
    lots |= _blocked(lots, unfit)
    wheels = draft_wheels(packages, groups, lots, facts, strong, published=published)
    groups = tuple(
        group.model_copy(
            update={
                "stand_ins": stand_ins(group, wheels),
                "published": published_in(group, wheels),
            }
        )
        for group in groups
    )
    return PlanDraft(fates=lots, groups=groups, wheels=wheels, merged=merged)


def _blocked(lots: Mapping[str, Eligibility], problems: Blocked) -> dict[str, Eligibility]:
    return {
        name: lots[name].model_copy(update={"state": "blocked", "reason": reason, "fix": fix})
        for name, (reason, fix) in problems.items()
    }


def lock_request(
    group: DraftGroup, packages: Sequence[Package], fates: Mapping[str, Eligibility]
) -> LockRequest:
    """The question for the closure that a group installs."""
    told = {each.name for each in group.stand_ins}
    told |= {requirement.partition("==")[0] for requirement in group.published}
    asked = [package for package in packages if package.name not in told]
    request = source_request(group, asked, fates)
    return request.model_copy(
        update={
            "requirements": tuple(sorted({*request.requirements, *group.published})),
            "stand_ins": group.stand_ins,
        }
    )


def source_request(
    group: DraftGroup, packages: Sequence[Package], fates: Mapping[str, Eligibility]
) -> LockRequest:
    """The question for the sources of these packages, whatever is known of what they need."""
    versions = [python.version for name in group.nodes if (python := fates[name].python)]
    return LockRequest(
        requirements=tuple(sorted(package.requirement for package in packages)),
        sources=tuple(sorted(package.name for package in packages)),
        python_version=plain(min(versions, key=version_key)),
        python=group.target.python,
        arch=group.target.arch,
        libc=group.target.libc,
    )


def nodes_blocking_dependencies(
    drafted: PlanDraft, packages: Sequence[Package], facts: Mapping[str, Facts], locks: Locks
) -> dict[str, tuple[str, str]]:
    """Members whose old libc alone may keep their group from its dependencies.

    Blocking them and drafting again lets the rest of the group go on.
    """
    culprits: dict[str, tuple[str, str]] = {}
    for group in drafted.groups:
        answer = locks[lock_request(group, packages, drafted.fates)]
        if answer.problem is None or answer.offline:
            continue
        oldest = [name for name in group.nodes if libc_of(facts[name]) == group.target.libc.floor]
        if len(oldest) < len(group.nodes):
            problem = (answer.problem, answer.fix or "")
            culprits.update(dict.fromkeys(oldest, problem))
    return culprits


def choose_toolkits(
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    fates: Mapping[str, Eligibility],
    *,
    facts: Mapping[str, Facts],
    strong: Sequence[str],
    config: Config,
) -> tuple[tuple[DraftGroup, ...], dict[str, tuple[str, str]]]:
    """The groups with their toolkits; and the nodes that are out, each with reason and fix."""
    fit: list[DraftGroup] = []
    unfit: dict[str, tuple[str, str]] = {}
    for group in groups:
        builders = choose_builders(group.target, [group], fates, facts, strong).able
        answer = _toolkit(group, packages, facts, builders, config.cuda)
        if isinstance(answer, Unfit):
            unfit |= dict.fromkeys(group.nodes, (answer.reason, answer.fix))
        else:
            fit.append(group.model_copy(update={"toolkit": answer}))
    return tuple(fit), unfit


def _toolkit(
    group: DraftGroup,
    packages: Sequence[Package],
    facts: Mapping[str, Facts],
    builders: Sequence[str],
    pin: str | None,
) -> Toolkit | Unfit | None:
    if not group.target.sms:
        return None
    return choose_toolkit(
        versions_of(packages),
        group.target.sms,
        group.target.python,
        [facts[name] for name in group.nodes],
        {name: facts[name] for name in builders},
        pin=pin,
        floors=cuda_floors(packages),
    )
