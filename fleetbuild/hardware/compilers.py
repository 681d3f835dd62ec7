"""The gcc versions that a distribution packages: its default, and additional ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fleetbuild.hardware.data import load

_DATA = load("compilers.yml")


@dataclass(frozen=True)
class PackagedGccs:
    """Major versions of gcc. `default` is None if unknown."""

    default: str | None = None
    additional: tuple[str, ...] = ()  # oldest first


@cache  # asked several times for each node of a plan
def packaged_gccs(distribution: str | None, version: str | None) -> PackagedGccs:
    """Return the gcc versions of a distribution, by ID and VERSION_ID of its os-release."""
    releases, parts = _DATA.get(distribution or "", {}), (version or "").split(".")
    fronts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    row = next((releases[front] for front in fronts if front in releases), None)
    if row is None:
        return PackagedGccs()
    return PackagedGccs(str(row["default"]), tuple(map(str, sorted(row["beside"]))))
