"""Find the CPU features that AArch64 machine code uses. Each instruction is one 32-bit word."""

from __future__ import annotations

import struct
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from fleetbuild.audit.models import FeatureUse

_RETURN = 0xD65F03C0
_BRANCH_IF_ZERO = 0x34000000  # cbz of a 32-bit register
_BRANCH_MASK = 0xFF000000


def used_features(data: bytes, address: int, known: frozenset[str]) -> Iterator[FeatureUse]:
    """Yield the first use of each feature beyond the baseline that is not in `known`."""
    words = _words(data)
    interesting = {word: needs for word in set(words) if (needs := features_of(word))}
    found = set(known)
    for at, word in enumerate(words):
        for feature in interesting.get(word, ()):
            if feature in found or (feature == "atomics" and _guarded(words, at)):
                continue
            found.add(feature)
            place = address + 4 * at
            yield FeatureUse(feature=feature, instruction=_text(word, place), address=place)


def features_of(word: int) -> tuple[str, ...]:
    """Return the features that an instruction needs, as /proc/cpuinfo names them."""
    for mask, value, needs in _patterns()[word >> 25 & 0xF]:
        if word & mask == value:
            return needs
    return ()


def implied(features: frozenset[str]) -> frozenset[str]:
    """Return the features that these features imply."""
    more = (other for feature in features for other in _table()["implied"].get(feature, ()))
    return features.union(more)


def _guarded(words: array[int], at: int) -> bool:
    """Return whether this is libgcc's helper for atomics, which checks the CPU first."""
    return (
        0 < at < len(words) - 1
        and words[at - 1] & _BRANCH_MASK == _BRANCH_IF_ZERO
        and words[at + 1] == _RETURN
    )


def _words(data: bytes) -> array[int]:
    words = array("I", data[: len(data) // 4 * 4])
    if sys.byteorder == "big":  # instructions are little-endian everywhere
        words.byteswap()
    return words


def _text(word: int, address: int) -> str:
    """The instruction in assembly; as a word, which objdump understands, without capstone."""
    inst = f".inst {word:#010x}"
    try:
        import capstone  # noqa: PLC0415 (optional; 14 ms, for one sentence of a few wheels)
    except ImportError:
        return inst
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    for _, _, mnemonic, operands in decoder.disasm_lite(struct.pack("<I", word), address):
        return f"{mnemonic} {operands}".strip()
    return inst  # newer than capstone


@cache
def _table() -> dict[str, Any]:
    text = files("fleetbuild.audit").joinpath("data/aarch64.yml").read_text("utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


@cache
def _patterns() -> dict[int, list[tuple[int, int, tuple[str, ...]]]]:
    """Return the table rows by bits 28 to 25, which separate the main instruction classes."""
    classes: dict[int, list[tuple[int, int, tuple[str, ...]]]] = defaultdict(list)
    for mask, value, needs in _table()["patterns"]:
        for bits in range(16):
            if bits & (mask >> 25 & 0xF) == value >> 25 & 0xF:
                classes[bits].append((mask, value, tuple(needs.split())))
    return classes
