"""Compiler flags: the flags of a rung for gcc, clang and rustc, and the features of given flags.

Only features of rungs count, and unknown flags enable nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from archspec.cpu import TARGETS

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS, Rung

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


@lru_cache(maxsize=1024)
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
