"""Merge groups into fewer wheel sets, and show what each number of sets costs.

In: the nodes' own targets and grouping.* of the configuration. Out: the target of each node and
the table of trade-offs. Runs between eligibility and grouping.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.extensions.catalogue.costs import Part, Pricing, toolkit_conflicts
from fleetbuild.extensions.catalogue.partition import Partition, cheapest_partitions
from fleetbuild.models import Config, Facts, Loss, Target, Tradeoff
from fleetbuild.models.plan import MergedTargets
from fleetbuild.plan.decide.packages import Package


def merge_targets(
    targets: Mapping[str, Target],
    features: Mapping[str, Collection[str]],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> MergedTargets:
    """Return the nodes' targets, merged as the configuration asks."""
    if not targets:
        return MergedTargets(targets={})
    recipes = [package.recipe for package in packages]
    sharing = toolkit_conflicts(targets, facts, packages, config)
    pricing = Pricing(recipes, config, sharing)
    ways = cheapest_partitions(_parts(targets, features), pricing.price)
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


def _parts(targets: Mapping[str, Target], features: Mapping[str, Collection[str]]) -> list[Part]:
    members: dict[Target, list[str]] = {}
    for name, target in targets.items():
        members.setdefault(target, []).append(name)
    parts = [
        Part(
            target=target,
            features=frozenset.intersection(*(frozenset(features[name]) for name in names)),
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
