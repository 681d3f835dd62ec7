"""CPU models: the rung that a model reaches if no feature is hidden from the node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from archspec.cpu import TARGETS

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS, Rung

_DATA = load("cpus.yml")


def expected_rung(processor: Mapping[str, str]) -> Rung | None:
    """Return the rung of the CPU model in these lines of /proc/cpuinfo; None if unknown."""
    row = _x86(processor) if "vendor_id" in processor else _arm(processor)
    return RUNGS[row["rung"]] if row else None


def x86_model_name(processor: Mapping[str, str]) -> str | None:
    """Return the microarchitecture of the x86 model in these lines, whatever features are hidden;
    None if it is unknown."""
    row = _x86(processor)
    return row.get("name") if row else None


def _x86(processor: Mapping[str, str]) -> dict[str, Any] | None:
    if re.search("Pentium|Celeron", processor.get("model name", "")):
        return None
    family, model = _number(processor.get("cpu family")), _number(processor.get("model"))
    stepping = _number(processor.get("stepping"))
    rows: list[dict[str, Any]] = _DATA["x86"]
    for row in rows:
        ours = (row["vendor"], row["family"]) == (processor.get("vendor_id"), family)
        if ours and model in row["models"] and _in_range(stepping, row.get("steppings")):
            return row
    return None


def _arm(processor: Mapping[str, str]) -> dict[str, Any] | None:
    implementer = _number(processor.get("CPU implementer"))
    part = _number(processor.get("CPU part"))
    rows: list[dict[str, Any]] = _DATA["arm"]
    return next(
        (row for row in rows if row["implementer"] == implementer and part in row["parts"]),
        None,
    )


def _in_range(number: int | None, limits: list[int] | None) -> bool:
    return limits is None or (number is not None and limits[0] <= number <= limits[1])


def _number(text: str | None) -> int | None:
    """Return 85 for "85" and 3340 for "0xd0c"; None if the text is not a small number."""
    known = re.fullmatch(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,8}", text or "")
    return int(known[0], 16 if "x" in known[0] else 10) if known else None


# The kernel's spelling to archspec's.
_ALIASES = {"pni": "sse3"}
_ARM_IMPLEMENTERS = {"0x41": "ARM", "0x43": "Cavium", "0x46": "Fujitsu", "0x4e": "Nvidia",
                     "0x61": "Apple", "0xc0": "Ampere"}  # fmt: skip


@lru_cache(maxsize=256)  # nodes of one kind have one answer
def microarchitecture(
    arch: str, features: frozenset[str], vendor: str | None = None, part: str | None = None
) -> str | None:
    """Return the best microarchitecture whose features are all present: `haswell`, `neoverse_v1`.

    `vendor` and `part` are as /proc/cpuinfo has them. Arm cores are known by their part, since
    cores of one architecture have the same flags; x86 by vendor and flags.
    """
    known = {_ALIASES.get(feature, feature) for feature in features}
    maker = _ARM_IMPLEMENTERS.get(vendor or "", vendor)
    fitting = [
        target
        for target in TARGETS.values()
        if target.family.name == arch and target.vendor == maker and target.features <= known
        if not target.cpu_part or target.cpu_part == part
    ]
    return max(fitting, key=lambda target: len(target.features)).name if fitting else None
