"""Rungs: named, exact sets of CPU features. flags.py has the compiler flags for them.

`a <= b` means that a node of rung b runs code built for a. It is a partial order: rungs of
different architectures cannot be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from fleetbuild.hardware.data import load

_DATA = load("rungs.yml")


@dataclass(frozen=True, eq=False)
class Rung:
    """A step of CPU capability. `features` includes the features of its parents."""

    name: str
    arch: str
    features: frozenset[str]
    label: str  # in a wheel's local version: x8664v2
    adds: tuple[str, ...] = ()  # beyond the parent, in the order that flags spell them
    march: str | None = None  # the compiler's own name for exactly this set
    parent: Rung | None = None

    def __le__(self, other: Rung) -> bool:
        return self.arch == other.arch and self.features <= other.features

    def __lt__(self, other: Rung) -> bool:
        return self <= other and self is not other

    def __ge__(self, other: Rung) -> bool:
        return other <= self

    def __gt__(self, other: Rung) -> bool:
        return other < self

    def __str__(self) -> str:
        return self.name

    @property
    def lineage(self) -> tuple[Rung, ...]:
        """This rung and its parents, weakest first."""
        return (*(self.parent.lineage if self.parent else ()), self)


def _read(table: dict[str, dict[str, Any]]) -> dict[str, Rung]:
    rungs: dict[str, Rung] = {}
    for name, row in table.items():
        parent = rungs[row["parent"]] if "parent" in row else None
        rungs[name] = Rung(
            name=name,
            arch=parent.arch if parent else row["arch"],
            features=frozenset(row["adds"]) | (parent.features if parent else frozenset()),
            label=row["label"],
            adds=tuple(row["adds"]),
            march=row.get("march"),
            parent=parent,
        )
    return rungs


RUNGS: dict[str, Rung] = _read(_DATA["rungs"])  # weakest first
ARCHITECTURES: tuple[str, ...] = tuple(_DATA["architectures"])


def best(
    features: Iterable[str], arch: str | None, allowed: Collection[str] | None = None
) -> Rung | None:
    """Return the best allowed rung that these features reach; None if they reach none.

    Of incomparable rungs, the later in the file wins. `allowed` has to name every rung, the
    baseline included.
    """
    have = frozenset(features)
    # The file lists a rung after every rung that it contains, so the last one reached is best.
    return next(
        (
            rung
            for rung in reversed(RUNGS.values())
            if rung.arch == arch
            and (allowed is None or rung.name in allowed)
            and rung.features <= have
        ),
        None,
    )


def why_not(rung: Rung, features: Iterable[str]) -> str:
    """Return why these features do not reach this rung, as a sentence; "" if they do."""
    missing = sorted(rung.features - frozenset(features))
    return f"{rung.name} needs {_and(missing)}, which this CPU does not show." if missing else ""


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
