"""Merge groups into fewer wheel sets, and show what each number of sets costs.

In: the nodes' own targets and grouping.* of the configuration. Out: the target of each node and
the table of trade-offs. Runs between eligibility and grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Loss, Plan, Target, Tradeoff
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.compatibility.constraints import sm_list
from fleetbuild.plan.decide.eligibility import Eligibility
from fleetbuild.plan.decide.merging.costs import Part, Pricing, SharingConflict
from fleetbuild.plan.decide.merging.partition import Partition, cheapest_partitions
from fleetbuild.recipes import Recipe
from fleetbuild.text import count


class MergedTargets(Frozen):
    """The target of each node after groups were merged."""

    targets: dict[str, Target]
    merged_from: dict[str, str] = {}  # node -> its group without merging
    tradeoffs: tuple[Tradeoff, ...] = ()


def merge_targets(
    targets: Mapping[str, Target],
    eligibility: Mapping[str, Eligibility],
    recipes: Sequence[Recipe],
    config: Config,
    sharing: SharingConflict | None = None,
) -> MergedTargets:
    """Return the nodes' targets, merged as the configuration asks."""
    grouping = config.grouping
    if not targets or (grouping.max_wheel_sets is None and grouping.optimize_for == "auto"):
        return MergedTargets(targets=dict(targets))
    pricing = Pricing(recipes, config, sharing)
    ways = cheapest_partitions(_parts(targets, eligibility), pricing.price)
    number = _choose_number(ways, pricing)
    shared = dict(_target_pairs(ways[number], pricing))
    return MergedTargets(
        targets={name: shared[own] for name, own in targets.items()},
        merged_from={name: own.name for name, own in targets.items() if shared[own] != own},
        tradeoffs=tuple(
            _tradeoff(ways[each], pricing, chosen=each == number)
            for each in sorted(ways, reverse=True)
        ),
    )


def explain_node_merge(plan: Plan, name: str) -> list[str]:
    """Return why a node was merged into another group; an empty list if it was not."""
    own = plan.nodes[name].merged_from
    return [
        f"merged: its own group would be {own}; of {row.wheel_sets} wheel sets it gets "
        f"{loss.wheel_set}: {describe_effect(loss)}. {_optimality(row)}"
        for row in plan.tradeoffs
        if row.chosen
        for loss in row.losses
        if loss.group == own
    ]


def explain_group_merges(plan: Plan, name: str) -> list[str]:
    """Return the nodes merged into a group, and the cost of other numbers of wheel sets."""
    rows = []
    for row in plan.tradeoffs:
        mark = " (chosen)" if row.chosen else ""
        losses = "; ".join(describe_loss(loss) for loss in row.losses) or "no node loses anything"
        rows.append(f"{count(row.wheel_sets, 'wheel set')}{mark}: {format_estimate(row)}; {losses}")
    taken = [
        f"merged: {describe_loss(loss)}. {_optimality(row)}"
        for row in plan.tradeoffs
        if row.chosen
        for loss in row.losses
        if name in (loss.wheel_set, loss.group)
    ]
    return taken + rows


def describe_loss(loss: Loss) -> str:
    """Return "cpu-avx512-cp311 (4 nodes) gets cpu-avx2-cp311: without avx512, …"."""
    nodes = count(loss.nodes, "node")
    return f"{loss.group} ({nodes}) gets {loss.wheel_set}: {describe_effect(loss)}"


def describe_effect(loss: Loss) -> str:
    """Return what a loss means for its nodes."""
    effects = []
    if loss.rung:
        percent = round(100 * loss.slower)
        pace = (
            f"CPU work expected to take {percent} % longer" if percent else "expected to be as fast"
        )
        effects.append(f"without {loss.rung}, {pace}")
    if loss.sms:
        effects.append(f"with GPU code for {sm_list(loss.sms)} of others")
    return ", ".join(effects)


def format_estimate(row: Tradeoff) -> str:
    """Return build time and size of all wheels: "4 min, 12 MB"."""
    time = f"{row.minutes:.0f} min" if row.minutes < 100 else f"{row.minutes / 60:.1f} h"
    size = f"{row.size_mb:.0f} MB" if row.size_mb < 1000 else f"{row.size_mb / 1000:.1f} GB"
    return f"{time}, {size}"


def _optimality(row: Tradeoff) -> str:
    if row.exact:
        return "No other merge into this many wheel sets costs less."
    return "There are too many groups to compare every merge; the cheapest pairs were merged first."


def _parts(targets: Mapping[str, Target], eligibility: Mapping[str, Eligibility]) -> list[Part]:
    members: dict[Target, list[str]] = {}
    for name, target in targets.items():
        members.setdefault(target, []).append(name)
    parts = [
        Part(
            target=target,
            features=frozenset.intersection(
                *(frozenset(eligibility[name].features) for name in names)
            ),
            nodes=len(names),
        )
        for target, names in members.items()
    ]
    return sorted(parts, key=lambda part: part.name)


def _choose_number(ways: Mapping[int, Partition[Part]], pricing: Pricing) -> int:
    """Return the number of wheel sets: as many as the cap allows; as few as possible with
    optimize_for: compatibility."""
    grouping = pricing.config.grouping
    cap = grouping.max_wheel_sets
    allowed = [number for number in ways if cap is None or number <= cap]
    if not allowed:
        fewest = min(ways)
        raise ConfigError(
            f"grouping.max_wheel_sets is {cap}, but these nodes need {fewest} wheel sets at "
            f"least: {_why_separate(ways[fewest], pricing)}.",
            f"Set grouping.max_wheel_sets to {fewest} or more, give the nodes one Python with "
            "python: if that is what differs, or leave some out with fleetbuild_skip: true.",
        )
    return min(allowed) if grouping.optimize_for == "compatibility" else max(allowed)


def _why_separate(way: Partition[Part], pricing: Pricing) -> str:
    """Return why the remaining wheel sets cannot be merged."""
    kinds: dict[tuple[str, ...], list[tuple[Part, ...]]] = {}
    for wheel_set in way.sets:
        kinds.setdefault(wheel_set[0].kind, []).append(wheel_set)
    clauses = []
    for kind, sets in sorted(kinds.items()):
        words = " ".join(kind)
        if len(sets) > 1:
            reason = pricing.conflict([part for each in sets for part in each])
            words += f" in {len(sets)} ({reason or 'the recipes have no rung below all of them'})"
        clauses.append(words)
    return "; ".join(clauses)


def _target_pairs(way: Partition[Part], pricing: Pricing) -> list[tuple[Target, Target]]:
    """Return pairs: a group's own target, and the target of its wheel set."""
    pairs = []
    for wheel_set in way.sets:
        target = pricing.target(wheel_set)
        assert target  # a set with a price has a target  # noqa: S101
        pairs += [(part.target, target) for part in wheel_set]
    return pairs


def _tradeoff(way: Partition[Part], pricing: Pricing, *, chosen: bool) -> Tradeoff:
    shared = dict(_target_pairs(way, pricing))
    minutes, size = pricing.to_build(list(dict.fromkeys(shared.values())))
    return Tradeoff(
        wheel_sets=len(way.sets),
        chosen=chosen,
        minutes=round(minutes, 1),
        size_mb=round(size, 1),
        cost=round(way.cost, 1),
        exact=way.exact,
        losses=tuple(
            _loss(part, shared[part.target], pricing)
            for part in sorted((p for each in way.sets for p in each), key=lambda part: part.name)
            if shared[part.target] != part.target
        ),
    )


def _loss(part: Part, target: Target, pricing: Pricing) -> Loss:
    own = part.target
    return Loss(
        group=own.name,
        nodes=part.nodes,
        wheel_set=target.name,
        rung=own.isa if own.isa != target.isa else None,
        slower=round(pricing.slower(own, target), 3),
        sms=tuple(sm for sm in target.sms if sm not in own.sms),
    )
