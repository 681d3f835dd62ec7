"""Fewer wheel sets: which groups share one, and what that costs whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Loss, Target, Tradeoff
from fleetbuild.models._base import Frozen
from fleetbuild.planning.costs import Part, Pricing, Sharing
from fleetbuild.planning.fates import Fate
from fleetbuild.planning.merge import Way, cheapest_ways
from fleetbuild.recipes import Recipe
from fleetbuild.words import count


class Merged(Frozen):
    """The target of each node, after groups were merged."""

    targets: dict[str, Target]
    merged_from: dict[str, str] = {}  # node -> the group that it would be in otherwise
    tradeoffs: tuple[Tradeoff, ...] = ()


def merge_targets(
    targets: Mapping[str, Target],
    fates: Mapping[str, Fate],
    recipes: Sequence[Recipe],
    config: Config,
    sharing: Sharing | None = None,
) -> Merged:
    """The targets of these nodes, no more of them than the configuration wants."""
    grouping = config.grouping
    if not targets or (grouping.max_wheel_sets is None and grouping.optimize_for == "auto"):
        return Merged(targets=dict(targets))
    pricing = Pricing(recipes, config, sharing)
    ways = cheapest_ways(_parts(targets, fates), pricing.price)
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


def loss_sentence(loss: Loss) -> str:
    """What it means for these nodes: avx2 in place of avx512, about 25 % slower."""
    effects = []
    if loss.rung:
        effects.append(f"without {loss.rung}" + (f", {slower(loss)}" if loss.slower else ""))
    if loss.sms:
        effects.append(f"with GPU code for SM {', '.join(loss.sms)} of others")
    return f"{loss.group} ({count(loss.nodes, 'node')}) gets {loss.wheel_set}: {', '.join(effects)}"


def slower(loss: Loss) -> str:
    """How much longer the CPU's work is expected to take."""
    return f"its CPU work expected to take {round(100 * loss.slower)} % longer"


def hours(minutes: float) -> str:
    """A time that is an estimate: 4 min, 2.5 h."""
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def megabytes(size: float) -> str:
    """A size that is an estimate: 12 MB, 1.5 GB."""
    return f"{size:.0f} MB" if size < 1000 else f"{size / 1000:.1f} GB"


def _parts(targets: Mapping[str, Target], fates: Mapping[str, Fate]) -> list[Part]:
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


def _number(ways: Mapping[int, Way[Part]], pricing: Pricing) -> int:
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


def _apart(way: Way[Part], pricing: Pricing) -> str:
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


def _shared(way: Way[Part], pricing: Pricing) -> list[tuple[Target, Target]]:
    """Each group's own target and the one of its wheel set."""
    pairs = []
    for wheel_set in way.sets:
        target = pricing.target(wheel_set)
        assert target  # it has a price, so it has a target  # noqa: S101
        pairs += [(part.target, target) for part in wheel_set]
    return pairs


def _tradeoff(way: Way[Part], pricing: Pricing, *, chosen: bool) -> Tradeoff:
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
