"""Fewer wheel sets: which groups share one, and what that costs whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Loss, Plan, Target, Tradeoff
from fleetbuild.models._base import Frozen
from fleetbuild.planning.compatibility.constraints import sm_list
from fleetbuild.planning.eligibility.assess import Eligibility
from fleetbuild.planning.merging.costs import Part, Pricing, Sharing
from fleetbuild.planning.merging.partition import Partition, cheapest_partitions
from fleetbuild.recipes import Recipe
from fleetbuild.text import count


class Merged(Frozen):
    """The target of each node, after groups were merged."""

    targets: dict[str, Target]
    merged_from: dict[str, str] = {}  # node -> the group that it would be in otherwise
    tradeoffs: tuple[Tradeoff, ...] = ()


def merge_targets(
    targets: Mapping[str, Target],
    fates: Mapping[str, Eligibility],
    recipes: Sequence[Recipe],
    config: Config,
    sharing: Sharing | None = None,
) -> Merged:
    """The targets of these nodes, no more of them than the configuration wants."""
    grouping = config.grouping
    if not targets or (grouping.max_wheel_sets is None and grouping.optimize_for == "auto"):
        return Merged(targets=dict(targets))
    pricing = Pricing(recipes, config, sharing)
    ways = cheapest_partitions(_parts(targets, fates), pricing.price)
    number = _number(ways, pricing)
    shared = dict(_shared(ways[number], pricing))
    return Merged(
        targets={name: shared[own] for name, own in targets.items()},
        merged_from={name: own.name for name, own in targets.items() if shared[own] != own},
        tradeoffs=tuple(
            _tradeoff(ways[each], pricing, chosen=each == number)
            for each in sorted(ways, reverse=True)
        ),
    )


def node_story(plan: Plan, name: str) -> list[str]:
    """Why a node is not in the group that it would be in by itself."""
    own = plan.nodes[name].merged_from
    return [
        f"merged: by itself it would be in {own}; of {row.wheel_sets} wheel sets it gets "
        f"{loss.wheel_set}: {effect(loss)}. {_least(row)}"
        for row in plan.tradeoffs
        if row.chosen
        for loss in row.losses
        if loss.group == own
    ]


def group_story(plan: Plan, name: str) -> list[str]:
    """Whom a group takes in, and what other numbers of wheel sets would come to."""
    rows = []
    for row in plan.tradeoffs:
        mark = " (chosen)" if row.chosen else ""
        losses = "; ".join(told(loss) for loss in row.losses) or "nobody loses anything"
        rows.append(f"{count(row.wheel_sets, 'wheel set')}{mark}: {estimate(row)}; {losses}")
    taken = [
        f"merged: {told(loss)}. {_least(row)}"
        for row in plan.tradeoffs
        if row.chosen
        for loss in row.losses
        if name in (loss.wheel_set, loss.group)
    ]
    return taken + rows


def told(loss: Loss) -> str:
    """Who loses what: cpu-avx512-cp311 (4 nodes) gets cpu-avx2-cp311: without avx512, …"""
    nodes = count(loss.nodes, "node")
    return f"{loss.group} ({nodes}) gets {loss.wheel_set}: {effect(loss)}"


def effect(loss: Loss) -> str:
    """What it means for these nodes."""
    effects = []
    if loss.rung:
        percent = round(100 * loss.slower)
        pace = f"CPU work expected to take {percent} % longer" if percent else "expected as fast"
        effects.append(f"without {loss.rung}, {pace}")
    if loss.sms:
        effects.append(f"with GPU code for {sm_list(loss.sms)} of others")
    return ", ".join(effects)


def estimate(row: Tradeoff) -> str:
    """How long these wheels take to build, and how large they are: 4 min, 12 MB."""
    time = f"{row.minutes:.0f} min" if row.minutes < 100 else f"{row.minutes / 60:.1f} h"
    size = f"{row.size_mb:.0f} MB" if row.size_mb < 1000 else f"{row.size_mb / 1000:.1f} GB"
    return f"{time}, {size}"


def _least(row: Tradeoff) -> str:
    if row.exact:
        return "No other way to have so few loses less."
    return "There are too many groups to weigh every way; the cheapest were merged first."


def _parts(targets: Mapping[str, Target], fates: Mapping[str, Eligibility]) -> list[Part]:
    members: dict[Target, list[str]] = {}
    for name, target in targets.items():
        members.setdefault(target, []).append(name)
    parts = [
        Part(
            target=target,
            features=frozenset.intersection(*(frozenset(fates[name].features) for name in names)),
            nodes=len(names),
        )
        for target, names in members.items()
    ]
    return sorted(parts, key=lambda part: part.name)


def _number(ways: Mapping[int, Partition[Part]], pricing: Pricing) -> int:
    """How many wheel sets there will be: as many as the cap allows, so that none is merged
    without need; with `compatibility` as few as there can be."""
    grouping = pricing.config.grouping
    cap = grouping.max_wheel_sets
    allowed = [number for number in ways if cap is None or number <= cap]
    if not allowed:
        fewest = min(ways)
        raise ConfigError(
            f"grouping.max_wheel_sets is {cap}, and these nodes need {fewest} wheel sets at "
            f"least: {_apart(ways[fewest], pricing)}.",
            f"Set grouping.max_wheel_sets to {fewest} or more, give the nodes one Python with "
            "python: where that is what differs, or leave some out with fleetbuild_skip: true.",
        )
    return min(allowed) if grouping.optimize_for == "compatibility" else max(allowed)


def _apart(way: Partition[Part], pricing: Pricing) -> str:
    """What keeps the last sets apart."""
    kinds: dict[tuple[str, ...], list[tuple[Part, ...]]] = {}
    for wheel_set in way.sets:
        kinds.setdefault(wheel_set[0].kind, []).append(wheel_set)
    said = []
    for kind, sets in sorted(kinds.items()):
        words = " ".join(kind)
        if len(sets) > 1:
            reason = pricing.hindrance([part for each in sets for part in each])
            words += f" in {len(sets)} ({reason or 'the recipes have no rung below all of them'})"
        said.append(words)
    return "; ".join(said)


def _shared(way: Partition[Part], pricing: Pricing) -> list[tuple[Target, Target]]:
    """Each group's own target and the one of its wheel set."""
    pairs = []
    for wheel_set in way.sets:
        target = pricing.target(wheel_set)
        assert target  # it has a price, so it has a target  # noqa: S101
        pairs += [(part.target, target) for part in wheel_set]
    return pairs


def _tradeoff(way: Partition[Part], pricing: Pricing, *, chosen: bool) -> Tradeoff:
    shared = dict(_shared(way, pricing))
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
