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
    releases = _DATA.get(distribution or "", {})
    row = releases.get(version) or releases.get((version or "").partition(".")[0])
    if row is None:
        return Offer()
    return Offer(str(row["default"]), tuple(map(str, sorted(row["beside"]))))
