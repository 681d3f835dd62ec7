"""CPUs as Windows describes them, and the options of Microsoft's compiler (MSVC).

In: CPUID registers, the numbers that IsProcessorFeaturePresent confirms, a rung, a CUDA version.
Out: features in the kernel's spelling, compiler options, allowed toolsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import Rung
from fleetbuild.text import version_key

_DATA = load("windows.yml", __package__)
_REGISTERS = ("eax", "ebx", "ecx", "edx")
_AVX_STATE, _AVX512_STATE = 0x7, 0xE7
_MINIMUM = "14.20"  # Visual Studio 2019


@dataclass(frozen=True)
class WindowsFeatures:
    """CPU features; `by_model` are not read but follow from the CPU's model. CPUID is `exact`."""

    features: frozenset[str]
    by_model: frozenset[str] = frozenset()
    exact: bool = False


def features_of_cpuid(
    registers: Mapping[tuple[int, int], tuple[int, int, int, int]],
    xstate: int | None,
    numbers: Collection[int],
) -> WindowsFeatures:
    """Return the features in these CPUID leaves that Windows lets programs use.

    `registers` maps (leaf, subleaf) to eax to edx. Without `xstate` (the enabled bits of XCR0),
    `numbers` say which registers Windows saves.
    """
    if xstate is None:
        xstate = _AVX512_STATE if 41 in numbers else _AVX_STATE if 39 in numbers else 0
    found = set()
    for place, bits in _DATA["cpuid"].items():
        leaf, subleaf, register = place.split()
        values = _leaf(registers, int(leaf, 16), int(subleaf, 16))
        value = values[_REGISTERS.index(register)]
        found |= {feature for bit, feature in bits.items() if value >> bit & 1}
    saved = frozenset(feature for feature in found if _saved(feature, xstate))
    return WindowsFeatures(saved, exact=True)


def _leaf(
    registers: Mapping[tuple[int, int], tuple[int, int, int, int]], leaf: int, subleaf: int
) -> tuple[int, int, int, int]:
    """Return a leaf. Beyond the last one, a CPU repeats another leaf's values: these are zeros."""
    nothing = (0, 0, 0, 0)
    last = registers.get((leaf & 0x80000000, 0), nothing)[0]
    last_subleaf = registers.get((leaf, 0), nothing)[0] if leaf == 7 else 0
    if leaf > last or subleaf > last_subleaf:
        return nothing
    return registers.get((leaf, subleaf), nothing)


def _saved(feature: str, xstate: int) -> bool:
    needed = next((bits for name, bits in _DATA["xstate"].items() if feature.startswith(name)), 0)
    return xstate & int(needed) == needed


def features_of_numbers(
    numbers: Collection[int], model: Rung | None, version: str
) -> WindowsFeatures:
    """Return the features that Windows confirms by number, and what the CPU's model adds."""
    if not numbers:  # Windows was not asked
        return WindowsFeatures(frozenset({"lm", "sse2"}))
    known = {name for number, name in _DATA["processor_features"].items() if number in numbers}
    known |= {"lm"}
    if version_key(version) >= version_key(_DATA["required"]["from"]):
        known |= set(_DATA["required"]["features"])
    expected = model.features if model else frozenset()
    added = {
        feature
        for feature, confirmed in _DATA["with_model"].items()
        if confirmed in known and feature in expected and feature not in known
    }
    return WindowsFeatures(frozenset(known | added), frozenset(added))


def arch_option(rung: Rung) -> str:
    """Return the /arch option with which MSVC stays within a rung; "" for its default, SSE2."""
    named = [_DATA["arch"][step.name] for step in rung.lineage if step.name in _DATA["arch"]]
    return str(named[-1]) if named else ""


def refused_toolset(cuda: str | None) -> str | None:
    """Return the first MSVC toolset that a CUDA toolkit refuses, such as 14.30; None if unknown."""
    rows = {
        since: first
        for since, first in _DATA["toolsets"].items()
        if cuda and version_key(since) <= version_key(cuda)
    }
    return str(list(rows.values())[-1]) if rows else None


def fits_toolset(version: str, cuda: str | None) -> bool:
    """Return whether this MSVC toolset builds with this CUDA toolkit (None: without CUDA)."""
    first = refused_toolset(cuda)
    newest = first is None or version_key(version) < version_key(first)
    return newest and version_key(version) >= version_key(_MINIMUM)
