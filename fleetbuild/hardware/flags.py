"""The CPU features that compiler flags enable: from `-march=haswell` to features.

Only features of rungs count, and unknown flags enable nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from archspec.cpu import TARGETS

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS

_DATA = load("rungs.yml")
_FLAG = re.compile(r"(?<![\w-])-m(?:(arch|cpu)=([\w.+-]+)|([\w.-]+)(?![\w.=-]))", re.ASCII)
_WHOLE = re.compile(r"-m(?:arch|cpu)=(\S+)(?: -mtune=\S+)?")
_KERNELS = {"sse3": "pni"}  # archspec's spelling to the kernel's


@cache
def _features_by_name() -> dict[str, frozenset[str]]:
    """Return name -> features for the processor and architecture names of compilers."""
    found = {name: frozenset[str](has) for name, has in _DATA["implied"].items()}
    for target in TARGETS.values():
        features = frozenset(_KERNELS.get(feature, feature) for feature in target.features)
        for row in (*target.compilers.get("gcc", ()), *target.compilers.get("clang", ())):
            name = row.get("name", target.name)
            match = _WHOLE.fullmatch(row["flags"].replace("{name}", name))
            if match and match[1] not in _DATA["implied"] and "+" not in match[1]:
                found[match[1]] = features & found.get(match[1], features)
    return found


def rust_flags(features: Iterable[str]) -> str:
    """Return rustc's flags for exactly these features of a rung, beyond the architecture's own."""
    names = (_DATA["features"][feature] for feature in sorted(features))
    spelled = (row.get("rust", row["option"]) for row in names)
    listed = ",".join(f"+{name}" for name in spelled if name)
    return f"-C target-feature={listed}" if listed else ""


_OPTIONS = {row["option"]: feature for feature, row in _DATA["features"].items()}
_OF_RUNGS = frozenset[str]().union(*(rung.features for rung in RUNGS.values()))


def features_of_flags(text: str) -> dict[str, frozenset[str]]:
    """Return each flag in this text that enables CPU features, with the features. Of several
    -march the last one counts."""
    flags = {match[1] or match[0]: match for match in _FLAG.finditer(text)}
    found = {match[0]: _features_of_flag(match) for match in flags.values()}
    return {flag: features for flag, features in found.items() if features}


def _features_of_flag(match: re.Match[str]) -> frozenset[str]:
    base, *more = (match[2] or "").split("+")
    options = [*more, match[3] or ""]
    features = {_OPTIONS[option] for option in options if option in _OPTIONS}
    return _OF_RUNGS & (_features_by_name().get(base, frozenset()) | features)
