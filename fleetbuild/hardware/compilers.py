"""Which gcc a distribution offers beside its default one."""

from __future__ import annotations

from dataclasses import dataclass

from fleetbuild.hardware.data import load

_DATA = load("compilers.yml")


@dataclass(frozen=True)
class Offer:
    """Major versions of gcc. `default` is None where it is not known."""

    default: str | None = None
    beside: tuple[str, ...] = ()  # oldest first


def gccs_of(distribution: str | None, version: str | None) -> Offer:
    """What a distribution offers, by ID and VERSION_ID of its os-release."""
    releases, parts = _DATA.get(distribution or "", {}), (version or "").split(".")
    fronts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    row = next((releases[front] for front in fronts if front in releases), None)
    if row is None:
        return Offer()
    return Offer(str(row["default"]), tuple(map(str, sorted(row["beside"]))))
