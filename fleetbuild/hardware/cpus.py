"""CPU models: the rung that a model reaches if no feature is hidden from the node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS, Rung

_DATA = load("cpus.yml")


def expected_rung(processor: Mapping[str, str]) -> Rung | None:
    """Return the rung of the CPU model in these lines of /proc/cpuinfo; None if unknown."""
    name = _x86(processor) if "vendor_id" in processor else _arm(processor)
    return RUNGS[name] if name else None


def _x86(processor: Mapping[str, str]) -> str | None:
    if re.search("Pentium|Celeron", processor.get("model name", "")):
        return None
    family, model = _number(processor.get("cpu family")), _number(processor.get("model"))
    stepping = _number(processor.get("stepping"))
    for row in _DATA["x86"]:
        ours = (row["vendor"], row["family"]) == (processor["vendor_id"], family)
        if ours and model in row["models"] and _in_range(stepping, row.get("steppings")):
            return str(row["rung"])
    return None


def _arm(processor: Mapping[str, str]) -> str | None:
    implementer = _number(processor.get("CPU implementer"))
    part = _number(processor.get("CPU part"))
    rows: list[dict[str, Any]] = _DATA["arm"]
    return next(
        (row["rung"] for row in rows if row["implementer"] == implementer and part in row["parts"]),
        None,
    )


def _in_range(number: int | None, limits: list[int] | None) -> bool:
    return limits is None or (number is not None and limits[0] <= number <= limits[1])


def _number(text: str | None) -> int | None:
    """Return 85 for "85" and 3340 for "0xd0c"; None if the text is not a small number."""
    known = re.fullmatch(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,8}", text or "")
    return int(known[0], 16 if "x" in known[0] else 10) if known else None
