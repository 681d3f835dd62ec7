"""Find the CPU features that AArch64 machine code uses. Each instruction is one 32-bit word."""

from __future__ import annotations

import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Set
from functools import cache
from typing import Any

from fleetbuild.audit.models import FeatureUse
from fleetbuild.audit.paths import Paths
from fleetbuild.audit.pieces import Found, Kind, Piece, chunks
from fleetbuild.hardware.data import load

_RETURN = 0xD65F03C0
# rdvl; cntb, cnth, cntw, cntd
_LENGTHS = ((0x04BF5000, 0xFFFFF800), (0x0420E000, 0xFF30FC00))
_BRANCH_IF_ZERO = 0x34000000  # cbz of a 32-bit register
_BRANCH_MASK = 0xFF000000
_PAGE_TO_X16 = 0x90000010  # adrp x16
_LOAD, _LOAD_MASK = 0xF9400211, 0xFFC003FF  # ldr x17, [x16, #…]
_LANDING = (0xD503245F, 0xD503201F)  # bti c, nop
# cbz, cbnz, tbz, tbnz, and, ands, subs, ubfx
_TESTS = {0x34: 1, 0x35: 1, 0x36: 1, 0x37: 1, 0x12: 1, 0x72: 1, 0x71: 1, 0x53: 1}
_LIKE_TEXT = frozenset({"cmpbr", "mte"})  # "…t", "…u", "…h" and "…i" look like them
_CHARACTERS = frozenset({0, 9, 10, *range(32, 127)})
_ANYWHERE = range(2**64)
_IDENTITY = re.compile(rb".[\x00-\x07]\x38\xd5", re.S)  # mrs of an ID register


def used_features(data: bytes, pieces: Iterable[Piece]) -> Iterator[Found]:
    """Yield the first use of each feature beyond the baseline, for each kind of piece."""
    found: set[tuple[str, Kind]] = set()
    for chunk in chunks(data, pieces, margin=0):
        words = _words(chunk.data, -chunk.start % 4)
        interesting = {word: needs for word in set(words) if (needs := features_of(word))}
        if not interesting:
            continue
        for piece in chunk.pieces:
            first = max(0, piece.start - chunk.start + 3) // 4
            for at in range(first, min(len(words), (piece.end - chunk.start) // 4)):
                for feature in interesting.get(words[at], ()):
                    if feature == "atomics" and _guarded(words, at):
                        continue
                    if feature in _LIKE_TEXT and (not piece.known or _is_text(words[at])):
                        continue
                    when = piece.when
                    if feature == "sve" and when == "load" and _asks_for_length(words[at]):
                        when = "default"
                    if (feature, (when, piece.local)) in found:
                        continue
                    found.add((feature, (when, piece.local)))
                    place = chunk.start + -chunk.start % 4 + 4 * at + piece.shift
                    use = FeatureUse(
                        feature=feature,
                        when=when,
                        instruction=f".inst {words[at]:#010x}",  # as objdump understands it
                        address=place,
                    )
                    yield use, piece.local


def references(
    data: bytes, start: int, end: int, shift: int, wanted: tuple[Container[int], Container[int]]
) -> Iterator[tuple[int, int, bool]]:
    """Yield where code refers to wanted places or slots, to which, and whether it is a slot.

    A slot holds the address that is meant.
    """
    pages: dict[int, int] = {}
    address = start + shift - 4
    for word in _words(data[start:end]):
        address += 4
        kind = word >> 24
        stored = False
        if kind & 0x7C == 0x14:  # b, bl
            target = address + 4 * _signed(word, 26)
        elif kind & 0x9F == 0x90:  # adrp
            pages[word & 31] = _page(word, address)
            continue
        elif kind == 0x91 and word >> 5 & 31 in pages:  # add
            target = pages[word >> 5 & 31] + (word >> 10 & 0xFFF)
        elif kind & 0x3F == 0x39 and word >> 5 & 31 in pages:  # ldr, str of an offset
            target = pages[word >> 5 & 31] + ((word >> 10 & 0xFFF) << (word >> 30))
            stored = True
        elif kind == 0x54:  # b.cond
            target = address + 4 * _signed(word >> 5, 19)
        else:
            continue
        if target in wanted[stored]:
            yield address, target, stored


def targets(data: bytes, start: int, end: int, shift: int) -> Iterator[tuple[int, bool, bool]]:
    """Yield what a function reaches, whether it is a slot, and whether it is called."""
    for place, target, stored in references(data, start, end, shift, (_ANYWHERE, _ANYWHERE)):
        kind = data[place - shift + 3]
        yield target, stored, kind & 0x7C == 0x14 or kind == 0x54


def near_jumps(*_: object) -> Iterator[tuple[int, int]]:
    """Yield nothing: references has all jumps."""
    yield from ()


def touched(data: bytes, start: int, end: int, shift: int) -> Iterator[int]:
    """Yield the addresses that code reads, writes or takes."""
    for _, target, _ in references(data, start, end, shift, (_ANYWHERE, _ANYWHERE)):
        yield target


def touching(data: bytes, start: int, end: int, shift: int, wanted: Set[int]) -> Iterator[int]:
    """Yield where code reads, writes or takes one of these addresses."""
    for place, _, _ in references(data, start, end, shift, (wanted, wanted)):
        yield place


def extent(_: bytes, start: int, end: int) -> int:
    """Return how many bytes a function has that begins here, at most up to the end."""
    return end - start


def is_level(_: str) -> bool:
    """Return whether a feature is beyond what all code may need."""
    return True


def paths(*_: object) -> Paths:
    """Return that nothing is known of the paths through a function."""
    return Paths()


def tested_calls(data: bytes, start: int, end: int, shift: int) -> Iterator[int]:
    """Yield the functions whose result is compared right after the call."""
    words = _words(data[start:end])
    for at, word in enumerate(words[:-1]):
        if word >> 26 == 0x25 and _TESTS.get(words[at + 1] >> 24 & 0x7F):
            yield start + shift + 4 * (at + _signed(word, 26))


def stub_slot(data: bytes, offset: int, address: int) -> int | None:
    """Return where the stub of the linker at an address has its target stored."""
    words = list(_words(data[offset : offset + 16]))
    while words and words[0] in _LANDING:
        words, address = words[1:], address + 4
    if len(words) < 2 or words[0] & 0x9F00001F != _PAGE_TO_X16 or words[1] & _LOAD_MASK != _LOAD:
        return None
    return _page(words[0], address) + (words[1] >> 10 & 0xFFF) * 8


def questions(data: bytes, start: int, end: int) -> Iterator[int]:
    """Yield where code reads a register that describes the CPU."""
    for match in _IDENTITY.finditer(data, start, end):
        if match.start() % 4 == start % 4:
            yield match.start()


def is_question(*_: object) -> bool:
    """Return whether a word that looks like a question is one: words are never cut."""
    return True


def _page(word: int, address: int) -> int:
    pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    return (address & ~0xFFF) + ((pages ^ 1 << 20) - (1 << 20) << 12)


def _signed(word: int, bits: int) -> int:
    value = word & (1 << bits) - 1
    return (value ^ 1 << bits - 1) - (1 << bits - 1)


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


def _asks_for_length(word: int) -> bool:
    """Return whether an instruction only asks for the length of SVE's vectors.

    OpenSSL and BoringSSL have a function of nothing else, which they call once the kernel has said
    that there is SVE. The unwinder of libgcc asks when it meets a frame with SVE registers.
    """
    return any(word & mask == pattern for pattern, mask in _LENGTHS)


def _guarded(words: array[int], at: int) -> bool:
    """Return whether this is libgcc's helper for atomics, which checks the CPU first."""
    return (
        0 < at < len(words) - 1
        and words[at - 1] & _BRANCH_MASK == _BRANCH_IF_ZERO
        and words[at + 1] == _RETURN
    )


def _is_text(word: int) -> bool:
    """Return whether a word is four characters, as in the texts between functions of OpenSSL."""
    return all(byte in _CHARACTERS for byte in word.to_bytes(4, "little"))


def _words(data: bytes, start: int = 0) -> array[int]:
    words = array("I", data[start : start + (len(data) - start) // 4 * 4])
    if sys.byteorder == "big":  # instructions are little-endian everywhere
        words.byteswap()
    return words


@cache
def _table() -> dict[str, Any]:
    return load("aarch64.yml", "fleetbuild.audit")


@cache
def _patterns() -> dict[int, list[tuple[int, int, tuple[str, ...]]]]:
    """Return the table rows by bits 28 to 25, which separate the main instruction classes."""
    classes: dict[int, list[tuple[int, int, tuple[str, ...]]]] = defaultdict(list)
    for mask, value, needs in _table()["patterns"]:
        for bits in range(16):
            if bits & (mask >> 25 & 0xF) == value >> 25 & 0xF:
                classes[bits].append((mask, value, tuple(needs.split())))
    return classes
