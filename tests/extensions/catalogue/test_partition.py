"""The cheapest ways to put parts together, against all ways there are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.extensions.catalogue.partition import EXACT, Partition, cheapest_partitions

Price = Callable[[tuple[int, ...]], float | None]


def partitions(parts: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
    """Every way to put these parts into sets."""
    if not parts:
        yield []
        return
    first, *rest = parts
    for smaller in partitions(rest):
        yield [(first,), *smaller]
        for number, block in enumerate(smaller):
            yield [*smaller[:number], (first, *block), *smaller[number + 1 :]]


def by_brute_force(parts: Sequence[int], price: Price) -> dict[int, float]:
    best: dict[int, float] = {}
    for sets in partitions(parts):
        prices = [price(each) for each in sets]
        if None not in prices:
            cost = math.fsum(each for each in prices if each is not None)
            best[len(sets)] = min(cost, best.get(len(sets), math.inf))
    return best


def prices(seed: int, forbidden: frozenset[frozenset[int]]) -> Price:
    """A price for every set, without any rhyme; pairs that are forbidden cannot be in one."""

    def price(parts: tuple[int, ...]) -> float | None:
        if any(pair <= set(parts) for pair in forbidden):
            return None
        return random.Random(f"{seed} {sorted(parts)}").uniform(0, 100)  # noqa: S311

    return price


pairs = st.frozensets(
    st.tuples(st.integers(0, 7), st.integers(0, 7))
    .filter(lambda pair: pair[0] != pair[1])
    .map(frozenset),
    max_size=12,
)


@given(st.integers(0, 8), st.integers(), pairs)
def test_each_partition_is_the_cheapest(
    number: int, seed: int, forbidden: frozenset[frozenset[int]]
) -> None:
    price = prices(seed, forbidden)
    ways = cheapest_partitions(range(number), price)
    best = by_brute_force(range(number), price)
    assert list(ways) == sorted(best)
    for sets, way in ways.items():
        assert way.exact
        assert len(way.sets) == sets
        assert sorted(part for each in way.sets for part in each) == list(range(number))
        assert math.isclose(way.cost, math.fsum(price(each) or 0 for each in way.sets))
        assert math.isclose(way.cost, best[sets], abs_tol=1e-9)


def test_parts_that_cannot_share_stay_apart() -> None:
    ways = cheapest_partitions(
        "aAbB", lambda parts: 1.0 if len({*"".join(parts).lower()}) == 1 else None
    )
    assert list(ways) == [2, 3, 4]
    assert ways[2] == Partition(2.0, (("a", "A"), ("b", "B")))


def test_the_order_of_the_parts_decides_between_equal_costs() -> None:
    free = cheapest_partitions([3, 1, 2], lambda _: 0.0)
    assert free == cheapest_partitions([3, 1, 2], lambda _: 0.0)
    assert {part for each in free[2].sets for part in each} == {1, 2, 3}


def spread(parts: tuple[int, ...]) -> float:
    return 1.0 + (max(parts) - min(parts)) ** 2


def test_a_large_bunch_is_merged_pairwise_first_and_marked_inexact() -> None:
    far = [*range(0, 10 * EXACT, 10), *range(1, 10 * EXACT, 10)]
    ways = cheapest_partitions(far, spread)
    assert list(ways) == list(range(1, 2 * EXACT + 1))
    # Neighbours are merged first, which here is the best there is.
    assert ways[EXACT].cost == 2 * EXACT
    assert not ways[EXACT].exact
    assert ways[2 * EXACT].exact
    assert all(len(way.sets) == number for number, way in ways.items())


def test_a_large_bunch_without_possible_merges_stays_large() -> None:
    # 0 may share with any one other, and none of these with each other.
    ways = cheapest_partitions(
        range(EXACT + 4),
        lambda parts: 1.0 if len(parts) < 2 or (len(parts) == 2 and 0 in parts) else None,
    )
    assert min(ways) == EXACT + 3


def test_the_largest_exact_bunch_asks_for_each_price_once() -> None:
    asked = 0

    def price(parts: tuple[int, ...]) -> float:
        nonlocal asked
        asked += 1
        return spread(parts)

    ways = cheapest_partitions(range(EXACT), price)
    assert ways[1].cost == spread((0, EXACT - 1))
    assert asked < 2**EXACT + EXACT**2
