"""The cheapest partition of parts into sets, for every number of sets.

In: parts and a price for each set of parts (None if they cannot share). Out: one `Partition` for
each possible number of sets. Knows nothing of wheels.

Parts that cannot share are separated first. The rest is solved exactly by dynamic programming over
subsets, which takes 3^n steps; with more than EXACT parts, the cheapest pair is merged repeatedly
until EXACT are left, and the result is marked as not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

EXACT = 12

Part = TypeVar("Part")
# The cost of one set of these parts; None if they cannot share a set. Then no larger set that
# contains them can exist either.
Price = Callable[[tuple[Part, ...]], float | None]


@dataclass(frozen=True)
class Partition(Generic[Part]):
    """A division of the parts into sets, and its cost."""

    cost: float
    sets: tuple[tuple[Part, ...], ...]
    exact: bool = True  # no way with this number of sets costs less

    def __add__(self, other: Partition[Part]) -> Partition[Part]:
        return Partition(self.cost + other.cost, self.sets + other.sets, self.exact and other.exact)


def cheapest_partitions(parts: Sequence[Part], price: Price[Part]) -> dict[int, Partition[Part]]:
    """Return the cheapest partition for each possible number of sets, fewest sets first.

    The order of the parts decides between partitions of equal cost.
    """
    total: dict[int, Partition[Part]] = {0: Partition(0.0, ())}
    for bunch in _bunches(parts, price):
        ways = _ways(bunch, price)
        sums = (
            (had + more, one + other) for had, one in total.items() for more, other in ways.items()
        )
        total = _cheapest(sums)
    return dict(sorted(total.items()))


def _cheapest(ways: Iterator[tuple[int, Partition[Part]]]) -> dict[int, Partition[Part]]:
    found: dict[int, Partition[Part]] = {}
    for number, way in ways:
        if number not in found or way.cost < found[number].cost:
            found[number] = way
    return found


def _bunches(parts: Sequence[Part], price: Price[Part]) -> list[list[Part]]:
    """Return bunches of parts: a part can share a set only with parts of its own bunch."""
    bunches: list[list[Part]] = []
    for part in parts:
        joined = [b for b in bunches if any(price((other, part)) is not None for other in b)]
        bunches = [b for b in bunches if b not in joined]
        bunches.append([*(other for bunch in joined for other in bunch), part])
    return [sorted(bunch, key=list(parts).index) for bunch in bunches]


def _ways(bunch: Sequence[Part], price: Price[Part]) -> dict[int, Partition[Part]]:
    blocks: list[tuple[Part, ...]] = [(part,) for part in bunch]
    ways: dict[int, Partition[Part]] = {}
    exact = len(blocks) <= EXACT
    while len(blocks) > EXACT:
        ways[len(blocks)] = _way(
            blocks, price, exact=not ways
        )  # before any merge there is only one
        pair = _cheapest_pair(blocks, price)
        if pair is None:
            return ways
        one, other = pair
        blocks = [block for block in blocks if block not in (one, other)] + [one + other]
    return ways | {
        number: Partition(way.cost, way.sets, exact)
        for number, way in _partitions(blocks, price).items()
    }


def _way(blocks: Sequence[tuple[Part, ...]], price: Price[Part], *, exact: bool) -> Partition[Part]:
    return Partition(sum(price(block) or 0.0 for block in blocks), tuple(blocks), exact)


def _cheapest_pair(
    blocks: Sequence[tuple[Part, ...]], price: Price[Part]
) -> tuple[tuple[Part, ...], tuple[Part, ...]] | None:
    rises = [
        (together - (price(one) or 0.0) - (price(other) or 0.0), one, other)
        for number, one in enumerate(blocks)
        for other in blocks[number + 1 :]
        if (together := price(one + other)) is not None
    ]
    return min(rises, key=lambda rise: rise[0])[1:] if rises else None


def _partitions(
    blocks: Sequence[tuple[Part, ...]], price: Price[Part]
) -> dict[int, Partition[Part]]:
    """Return the cheapest partition for each number of sets. Bit i of a mask is blocks[i]."""
    prices = _prices(blocks, price)
    # For each subset: number of sets -> (cost, the set that holds its lowest bit).
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for mask in range(1, len(prices)):
        found: dict[int, tuple[float, int]] = {}
        for block in _subsets_with_lowest(mask):
            cost = prices[block]
            if cost is None:
                continue
            for number, (rest, _) in best[mask ^ block].items():
                if number + 1 not in found or rest + cost < found[number + 1][0]:
                    found[number + 1] = (rest + cost, block)
        best.append(found)
    return {number: _read(best, blocks, number) for number in best[-1]}


def _prices(blocks: Sequence[tuple[Part, ...]], price: Price[Part]) -> list[float | None]:
    prices: list[float | None] = [0.0]
    for mask in range(1, 1 << len(blocks)):
        smaller = [mask ^ (1 << bit) for bit in range(len(blocks)) if mask >> bit & 1]
        possible = all(prices[each] is not None for each in smaller)
        prices.append(price(_of(blocks, mask)) if possible else None)
    return prices


def _subsets_with_lowest(mask: int) -> Iterator[int]:
    lowest = mask & -mask
    others = subset = mask ^ lowest
    while subset:
        yield subset | lowest
        subset = (subset - 1) & others
    yield lowest


def _read(
    best: Sequence[dict[int, tuple[float, int]]], blocks: Sequence[tuple[Part, ...]], number: int
) -> Partition[Part]:
    mask, sets = len(best) - 1, []
    cost = best[mask][number][0]
    for left in range(number, 0, -1):
        block = best[mask][left][1]
        sets.append(_of(blocks, block))
        mask ^= block
    return Partition(cost, tuple(sets))


def _of(blocks: Sequence[tuple[Part, ...]], mask: int) -> tuple[Part, ...]:
    return tuple(part for bit, block in enumerate(blocks) if mask >> bit & 1 for part in block)
