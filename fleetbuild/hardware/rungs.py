"""Rungs: named, exact sets of CPU features, and the compiler flags for them.

`a <= b` means that a node of rung b runs code built for a. It is a partial order: rungs of
different architectures cannot be compared.
"""

from __future__ import annotations

import re
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
    reached = [
        rung
        for rung in RUNGS.values()
        if rung.arch == arch and rung.features <= have and (allowed is None or rung.name in allowed)
    ]
    # The file lists a rung after every rung that it contains, so the last one reached is best.
    return reached[-1] if reached else None


def why_not(rung: Rung, features: Iterable[str]) -> str:
    """Return why these features do not reach this rung, as a sentence; "" if they do."""
    missing = sorted(rung.features - frozenset(features))
    return f"{rung.name} needs {_and(missing)}, which this CPU does not show." if missing else ""


def flags(rung: Rung, compiler: str, version: str | None) -> str:
    """Return the flags with which this compiler uses exactly the rung's features, such as
    `-march=x86-64-v3`.

    Features are spelled one by one if the compiler is too old for the short name or its version
    is unknown. Features that it does not know at all (see unknown_features) are left out: the
    code then stays within the rung.
    """
    known = _known(compiler, version)
    base = _named_base(rung, known)
    beyond_base = [
        feature
        for step in rung.lineage
        for feature in step.adds
        if not (base and feature in base.features) and known.feature(feature)
    ]
    march, hidden = base.march if base else _DATA["architectures"][rung.arch]["march"], ""
    if known.wants_later_base(beyond_base):
        march = _DATA["intrinsics"]["march"]
        hidden = "".join(f" -U{macro}" for macro in _DATA["intrinsics"]["hides"])
    option = _DATA["architectures"][rung.arch]["option"]
    spelled = (option.format(_DATA["features"][feature]["option"]) for feature in beyond_base)
    return f"-march={march}" + "".join(spelled) + hidden


def unknown_features(rung: Rung, compiler: str, version: str | None) -> frozenset[str]:
    """Return the rung's features that this compiler does not know; empty if its version is
    unknown."""
    known = _known(compiler, version)
    return frozenset(feature for feature in rung.features if not known.feature(feature))


def known_since(rung: Rung, compiler: str) -> str:
    """Return the first release of gcc or clang that knows all of the rung's features."""
    releases = [_DATA["features"][feature][compiler] for feature in rung.features]
    return max(releases, key=lambda release: _numbers(release) or (), default="")


@dataclass(frozen=True)
class _Known:
    """The features and names that a compiler version knows. An unknown version counts as knowing
    every feature (a compiler that is too old will say so) but no short name added later."""

    compiler: str
    version: tuple[int, ...] | None

    def feature(self, name: str) -> bool:
        return self.version is None or self.version >= self._since("features", name)

    def wants_later_base(self, features: Collection[str]) -> bool:
        """Return whether intrinsics of these features compile only for a later architecture."""
        late = _DATA["intrinsics"]
        old = self.version is None or self.version < (_numbers(late["before"]) or ())
        return (
            old and self.compiler == late["compiler"] and not set(late["of"]).isdisjoint(features)
        )

    def march(self, name: str) -> bool:
        plain = name in {row["march"] for row in _DATA["architectures"].values()}
        return plain or (self.version is not None and self.version >= self._since("march", name))

    def _since(self, table: str, name: str) -> tuple[int, ...]:
        return _numbers(_DATA[table][name][self.compiler]) or ()


def _known(compiler: str, version: str | None) -> _Known:
    return _Known("clang" if "clang" in compiler else "gcc", _numbers(version))


def _named_base(rung: Rung, known: _Known) -> Rung | None:
    """Return the highest rung, up to this one, that the compiler has a name for."""
    named = [step for step in rung.lineage if step.march and known.march(step.march)]
    return named[-1] if named else None


def _numbers(version: str | None) -> tuple[int, ...] | None:
    """Return (12, 2, 0) for 12.2.0; None if the text is not a version."""
    match = re.match(r"\d{1,4}(\.\d{1,4}){0,3}", version or "", re.ASCII)
    return tuple(int(part) for part in match[0].split(".")) if match else None


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
