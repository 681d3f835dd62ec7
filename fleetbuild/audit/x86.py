"""Find the CPU features that x86-64 machine code uses, and the functions that it calls.

To decode each instruction of a large library takes minutes. So a search over the bytes first finds
where an instruction beyond the baseline may be. Such a place is decoded on its own, and counts if
decoding from the start of its function comes to the same instruction.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from functools import cache
from typing import Any

from iced_x86 import (
    Code,
    CpuidFeature,
    Decoder,
    FlowControl,
    Formatter,
    FormatterSyntax,
    Instruction,
    Mnemonic,
)

from fleetbuild.audit.models import FeatureUse
from fleetbuild.audit.paths import Meaning, Paths, follow
from fleetbuild.audit.pieces import Chunk, Found, Kind, Piece, chunks
from fleetbuild.audit.x86_newer import Newer, read_newer
from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS

UNKNOWN = "?"  # the feature of an instruction that is not known
_GOES_ON = (FlowControl.NEXT, FlowControl.CONDITIONAL_BRANCH)
_LEAVES = (FlowControl.CALL, FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH)
_STOPS = (FlowControl.RETURN, FlowControl.INDIRECT_BRANCH)
_ASKING = (Mnemonic.CPUID, Mnemonic.XGETBV)
_PERHAPS_DATA = Newer(1, (), "")
_SHORTEST = 4  # bytes; less, at the end of a function, is what the function was filled up with
_SHOWN = 8  # bytes of an unknown instruction
_BEFORE = 96  # bytes in which a decoder has found the instructions
_LONGEST = 15  # bytes of an instruction
_KEY_BYTES = 6  # that decide which features it needs
_WINDOW = 4096  # bytes after which a decoder that began in between has found the instructions
_SURE_BEFORE, _SURE_AFTER = 16, 8  # valid instructions around one that no function contains

_PREFIXES = frozenset({0x66, 0xF2, 0xF3, *range(0x40, 0x50)})


def _class(values: Iterable[int]) -> bytes:
    return b"[" + b"".join(re.escape(bytes([value])) for value in values) + b"]"


# Opcodes of the first map that VEX has.
_VEX_OPCODES = _class(
    [*range(0x10, 0x18), *range(0x28, 0x30), *range(0x41, 0x4C), *range(0x50, 0x80),
     *range(0x90, 0x94), 0x98, 0x99, 0xAE, 0xC2, *range(0xC4, 0xC7), *range(0xD0, 0x100)]
)  # fmt: skip
_MEMORY_1 = _class(v for v in range(0xC0) if v >> 3 & 7 == 1)  # ModRM: memory, opcode extension 1
_Key = Callable[[bytes, int], int]


def _vex2(code: bytes, at: int) -> int:
    return (code[at + 1] & 7) << 9 | code[at + 2] << 1 | (code[at + 3] >= 0xC0)


def _vex3(code: bytes, at: int) -> int:
    prefix = (code[at + 1] & 31) << 8 | code[at + 2] & 0x87
    return prefix << 9 | code[at + 3] << 1 | (code[at + 4] >= 0xC0)


def _evex(code: bytes, at: int) -> int:
    prefix = (code[at + 1] & 15) << 16 | (code[at + 2] & 0x87) << 8 | code[at + 3] & 0xF0
    return prefix << 9 | code[at + 4] << 1 | (code[at + 5] >= 0xC0)


def _rex2(code: bytes, at: int) -> int:
    return code[at + 1] << 16 | code[at + 2] << 8 | code[at + 3]


# Pattern, and the bits there that decide which features the instruction needs.
_CANDIDATES: list[tuple[re.Pattern[bytes], _Key | None]] = [
    (re.compile(rb"\xc5(?=." + _VEX_OPCODES + rb")", re.S), _vex2),
    (
        re.compile(
            rb"\xc4(?=" + _class(v for v in range(256) if v & 31 in (1, 2, 3, 5, 7)) + rb")"
        ),
        _vex3,
    ),
    (re.compile(rb"\x62(?=" + _class(v for v in range(256) if v & 7) + rb")"), _evex),
    (re.compile(rb"\xd5"), _rex2),
    (re.compile(rb"\x8f(?=" + _class(v for v in range(256) if v & 31 in (8, 9, 10)) + rb")"), None),
    (  # alone, or behind a prefix that makes another instruction of it
        re.compile(
            rb"\x0f(?:(?=[\x38\x3a\x0f\xae\xc7]|\x01[\xc0-\xff])"
            rb"|(?=[\x12\x16\x2b\x78\x79\x7c\x7d\xb8\xbd\xd0\xf0])"
            rb"(?:(?<=[\x66\xf2\xf3].)|(?<=[\x66\xf2\xf3][\x40-\x4f].)))",
            re.S,
        ),
        None,
    ),
    # fisttp
    *((re.compile(x87 + rb"(?=" + _MEMORY_1 + rb")"), None) for x87 in (b"\xdb", b"\xdd", b"\xdf")),
]  # each begins with one byte, which is searched ten times as fast as one of several
# What reaches another place by a distance of 32 bits: calls, jumps and addresses that are taken;
# then loads and jumps by the stored value. Each begins with one byte, as the candidates do.
_RIP = rb"[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]"
_REFERENCES = (
    (rb"\xe8", rb"\xe9", rb"\x0f[\x80-\x8f]", rb"\x8d" + _RIP),
    # The last ones load two pointers of a table at once.
    (rb"\x8b" + _RIP, rb"\xff[\x15\x25\x35]", rb"\x0f[\x10\x12\x16\x28\x6c\x6f\x7e]" + _RIP),
)
_REACHES = re.compile(rb"[\xe8\xe9]|\x0f[\x80-\x8f]|\xff[\x15\x25]|\x8d" + _RIP)
# A call, and soon after it a comparison of eax: test, cmp, and, bt.
_TESTED = re.compile(
    rb"\xe8(?=(.{4}).{0,12}?(?:[\x84\x85]\xc0|[\x24\x25\x3c\x3d\xa8\xa9]|\x83[\xe0\xf8]|\x0f\xba\xe0))",
    re.S,
)
_NEAR = re.compile(rb"[\xeb\x70-\x7f](?=(.))", re.S)  # jumps by a distance of 8 bits
_TOUCHES = re.compile(
    rb"[\x02\x03\x08-\x0b\x10\x11\x20-\x23\x28\x29\x38-\x3b\x63\x6e\x6f\x7e\x7f\x80-\x8b\x8d\xa3\xab"
    rb"\xb1\xb6\xb7\xba\xbe\xbf\xc0\xc1\xc6\xc7\xd6\xf6\xf7]" + _RIP, re.S)  # fmt: skip
_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(.{4})", re.S)
_CPUID = re.compile(rb"\x0f\xa2")
_distance = struct.Struct("<i").unpack_from


def used_features(data: bytes, pieces: Iterable[Piece]) -> Iterator[Found]:
    """Yield the first use of each feature beyond the baseline, for each kind of piece."""
    search = _Search(data)
    for chunk in chunks(data, pieces, margin=_LONGEST):
        yield from search.chunk(chunk)


def references(
    data: bytes, start: int, end: int, shift: int, wanted: tuple[Set[int], Set[int]]
) -> Iterator[tuple[int, int, bool]]:
    """Yield where code refers to wanted places or slots, to which, and whether it is a slot.

    A slot holds the address that is meant. Bytes inside instructions look like references as well.
    """
    code, base = data[start : end + 4], start + shift
    for stored, places in enumerate(wanted):
        if not places:
            continue
        far = _distances(places, base, len(code))
        for pattern in _REFERENCES[stored]:
            for match in re.finditer(pattern + far, code, re.DOTALL):
                at = match.end()
                if (target := base + at + 4 + _distance(code, at)[0]) in places:
                    yield base + match.start(), target, bool(stored)


def _distances(places: Set[int], base: int, size: int) -> bytes:
    """Return a pattern of the distances to these places: most references lead elsewhere."""
    thirds: dict[int, set[int]] = defaultdict(set)
    nearest = (base - 4) >> 16, (base + size + 16) >> 16
    for place in {place >> 16 for place in places}:
        for high in range(place - nearest[1] - 1, place - nearest[0] + 2):
            thirds[high >> 8 & 0xFF].add(high & 0xFF)
    return (
        rb"(?=..(?:"
        + b"|".join(_class(sorted(low)) + re.escape(bytes([top])) for top, low in thirds.items())
        + rb"))"
    )


def targets(data: bytes, start: int, end: int, shift: int) -> Iterator[tuple[int, bool, bool]]:
    """Yield what a function reaches, whether it is a slot, and whether it is called."""
    code, base = data[start:end], start + shift
    with suppress(struct.error):
        for match in _REACHES.finditer(code):
            at, first = match.end(), code[match.start()]
            yield base + at + 4 + _distance(code, at)[0], first == 0xFF, first != 0x8D


def near_jumps(data: bytes, start: int, end: int, shift: int) -> Iterator[tuple[int, int]]:
    """Yield jumps over at most 128 bytes: where they are, and where they lead."""
    for match in _NEAR.finditer(data, start, end):
        distance = int.from_bytes(match[1], "little", signed=True)
        yield match.start() + shift, match.end() + 1 + distance + shift


def touched(data: bytes, start: int, end: int, shift: int) -> Iterator[int]:
    """Yield the addresses that code reads, writes or takes."""
    code = data[start:end]
    for match in _TOUCHES.finditer(code):
        if match.end() + 4 <= len(code):
            yield start + shift + match.end() + 4 + _distance(code, match.end())[0]


def touching(data: bytes, start: int, end: int, shift: int, wanted: Set[int]) -> Iterator[int]:
    """Yield where code reads, writes or takes one of these addresses."""
    if not wanted:
        return
    code, base = data[start:end], start + shift
    for match in re.finditer(
        _TOUCHES.pattern + _distances(wanted, base, len(code)), code, re.DOTALL
    ):
        if base + match.end() + 4 + _distance(code, match.end())[0] in wanted:
            yield base + match.start()


def extent(data: bytes, start: int, end: int) -> int:
    """Return how many bytes a function has that begins here, at most up to the end."""
    reached = furthest = 0
    for instruction in Decoder(64, data[start:end]):
        reached = instruction.next_ip
        flow = instruction.flow_control
        if flow == FlowControl.CONDITIONAL_BRANCH and instruction.near_branch_target < end - start:
            furthest = max(furthest, instruction.near_branch_target)
        if reached > furthest and flow in (*_STOPS, FlowControl.UNCONDITIONAL_BRANCH):
            break
    return reached


def is_level(feature: str) -> bool:
    """Return whether a feature is one that code for a level needs; v2 is often the baseline."""
    return feature not in RUNGS["x86-64-v2"].features and feature != UNKNOWN


def mentions(instruction: Instruction) -> Iterator[tuple[int, bool]]:
    """Yield the address that an instruction calls, jumps to or takes, or of what it reads."""
    if instruction.is_ip_rel_memory_operand:
        yield instruction.ip_rel_memory_address, instruction.mnemonic != Mnemonic.LEA
    elif instruction.flow_control in _LEAVES:
        yield instruction.near_branch_target, False


def paths(
    data: bytes, start: int, end: int, shift: int, means: Callable[[Instruction], Meaning]
) -> Paths:
    """Return what the paths through a function have in common."""

    known = _level_codes()

    def meaning(instruction: Instruction) -> Meaning:
        code = instruction.code
        if code not in known:
            known[code] = any(map(is_level, features_of(instruction)))
        if known[code]:
            return Meaning.LEVEL
        return Meaning.CHECK if instruction.mnemonic in _ASKING else means(instruction)

    return follow(data, start, end, shift, meaning)


def tested_calls(data: bytes, start: int, end: int, shift: int) -> Iterator[int]:
    """Yield the functions whose result is compared right after the call."""
    for match in _TESTED.finditer(data, start, end):
        yield match.end() + 4 + shift + int.from_bytes(match[1], "little", signed=True)


def stub_slot(data: bytes, offset: int, address: int) -> int | None:
    """Return where the stub of the linker at an address has its target stored."""
    match = _STUB.match(data, offset, offset + _LONGEST)
    if match is None:
        return None
    return address + match.end() - offset + int.from_bytes(match[1], "little", signed=True)


def questions(data: bytes, start: int, end: int) -> Iterator[int]:
    """Yield where CPUID may stand."""
    for match in _CPUID.finditer(data, start, end):
        yield match.start()


def is_question(data: bytes, piece: Piece, place: int) -> bool:
    """Return whether decoding a function comes to CPUID at a place."""
    stream = _Stream(data, piece)
    instruction = stream.covering(place)
    if not isinstance(instruction, Instruction) or instruction.mnemonic != Mnemonic.CPUID:
        return False
    return piece.known or stream.sure()


class _Search:
    """The features found so far, for each kind of piece."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._found: dict[Kind, set[str]] = defaultdict(set)
        self._harmless: dict[tuple[Kind, _Key | None], set[int]] = defaultdict(set)
        self._features: dict[int, tuple[str, ...]] = {}
        self._instruction = Instruction()
        self._stream: _Stream | None = None

    def chunk(self, chunk: Chunk) -> Iterator[Found]:
        """Yield the new uses of a part of the file."""
        decoder = Decoder(64, chunk.data)
        for pattern, key in _CANDIDATES:
            for at, piece in self._candidates(pattern, key, chunk):
                begin = at if key else _first(chunk.data, at)
                if self._unseen(chunk, decoder, begin, piece):
                    if self._lands(decoder, begin, piece.start - chunk.start):
                        yield from self._confirmed(chunk.start + at, piece)
                elif key and at <= len(chunk.data) - _KEY_BYTES:
                    self._harmless[piece.kind, key].add(key(chunk.data, at))

    def _candidates(
        self, pattern: re.Pattern[bytes], key: _Key | None, chunk: Chunk
    ) -> Iterator[tuple[int, Piece]]:
        """Yield where a pattern matches in a piece, unless such an instruction is known."""
        rest = iter(chunk.pieces)
        piece = chunk.pieces[0]
        first = last = 0
        harmless: set[int] = set()
        stop = len(chunk.data) - _KEY_BYTES
        for match in pattern.finditer(chunk.data):
            at = match.start()
            while at >= last:
                following = next(rest, None)
                if following is None:
                    return
                piece = following
                first, last = piece.start - chunk.start, piece.end - chunk.start
                harmless = self._harmless[piece.kind, key]
            if at >= first and (key is None or at > stop or key(chunk.data, at) not in harmless):
                yield at, piece

    def _unseen(self, chunk: Chunk, decoder: Decoder, at: int, piece: Piece) -> bool:
        """Return whether what may be an instruction here needs a feature that is not yet found."""
        if at >= decoder.max_position:
            return False
        decoder.position = at
        decoder.decode_out(self._instruction)
        if self._instruction.code != Code.INVALID:
            features = self._of(self._instruction)
        elif not piece.known:
            return False
        else:
            newer = read_newer(chunk.data[at : at + _LONGEST], features_of)
            features = newer.features if newer else (UNKNOWN,)
        return not self._found[piece.kind].issuperset(features)

    def _lands(self, decoder: Decoder, at: int, first: int) -> bool:
        """Return whether decoding from somewhat before comes to a place.

        Most candidates are bytes inside instructions. A decoder that begins inside one has found
        the instructions after 96 bytes: it missed none of 7,200 in OpenCV and OpenBLAS.
        """
        if at - first < _BEFORE:
            return True
        decoder.position = at - _BEFORE
        while decoder.position < at:
            decoder.decode_out(self._instruction)
        return decoder.position == at

    def _of(self, instruction: Instruction) -> tuple[str, ...]:
        code = instruction.code
        if code not in self._features:
            self._features[code] = features_of(instruction)
        return self._features[code]

    def _confirmed(self, place: int, piece: Piece) -> Iterator[Found]:
        """Yield the uses at a place, if decoding the piece comes to an instruction there."""
        if self._stream is None or self._stream.piece is not piece:
            self._stream = _Stream(self._data, piece)
        instruction = self._stream.covering(place)
        if instruction is None:
            return
        if isinstance(instruction, Newer):
            features, text = instruction.features, instruction.text
        else:
            features, text = self._of(instruction), ""
        for feature in features:
            if feature in self._found[piece.kind]:
                continue
            if piece.known or (feature not in _only_in_functions() and self._stream.sure()):
                self._found[piece.kind].add(feature)
                use = FeatureUse(
                    feature=feature,
                    when=piece.when,
                    instruction=text or f"{instruction}",
                    address=self._stream.begin + piece.shift,
                )
                yield use, piece.local


class _Stream:
    """The instructions of a piece, decoded as far as they are asked for."""

    def __init__(self, data: bytes, piece: Piece) -> None:
        self.piece = piece
        self._data = data
        self._instruction = Instruction()
        self._start_at(piece.start)

    def _start_at(self, start: int) -> None:
        end = min(self.piece.end, start + 2**20)
        self._decoder = Decoder(64, self._data[start:end], ip=start + self.piece.shift)
        self._valid = _SURE_BEFORE if start == self.piece.start else 0
        self.begin = self._end = self._last = start
        self._window = end
        self._newer: Newer | None = None

    def covering(self, place: int) -> Instruction | Newer | None:
        """Return the instruction that covers a place, if it is a valid one, or one not known."""
        if place < self.begin:
            near = place - self.piece.start <= _WINDOW
            self._start_at(self.piece.start if near else place - _WINDOW // 2)
        far = place - self._end > _WINDOW
        if far or (place > self._window - _LONGEST and self._window < self.piece.end):
            self._start_at(max(self.piece.start, place - _WINDOW // 2))
        while self._end <= place and self._decoder.can_decode:
            self._decoder.decode_out(self._instruction)
            self._last, self.begin = self.begin, self._end
            self._end += self._instruction.len
            if self._instruction.code == Code.INVALID:
                self._read_newer()
            elif not self.piece.known and self._instruction.is_privileged:
                self._valid = 0  # bytes of a table: no program of a user does this
            else:
                self._newer = None
                self._valid += 1
        if self._end <= place:
            return None
        return self._newer or (self._instruction if self._valid else None)

    def _read_newer(self) -> None:
        code = self._data[self.begin : min(self.begin + _LONGEST, self.piece.end)]
        self._newer = read_newer(code, features_of)
        if self._newer and self._newer.size <= len(code):
            self._end = self.begin + self._newer.size
            self._decoder.position += self._newer.size - self._instruction.len
            self._valid += 1
            if not self._falls_through():
                self._newer = _PERHAPS_DATA
            return
        self._newer = None
        if self._valid >= _SURE_BEFORE and len(code) > _SHORTEST and self._falls_through():
            self._newer = Newer(1, (UNKNOWN,), code[:_SHOWN].hex(" "))
        self._valid = 0

    def _falls_through(self) -> bool:
        """Return whether the instruction before leads here; behind jumps and returns is data."""
        before = Decoder(64, self._data[self._last : self.begin])
        return before.decode().flow_control in _GOES_ON if self.begin > self._last else True

    def sure(self) -> bool:
        """Return whether the instructions around the last one are valid, too."""
        if self._valid < _SURE_BEFORE:
            return False
        code = self._data[self._end : self._end + _LONGEST * _SURE_AFTER]
        following = Decoder(64, code[: max(0, self.piece.end - self._end)])
        for _ in range(_SURE_AFTER):
            if not following.can_decode:
                break
            instruction = following.decode()
            if instruction.code == Code.INVALID or instruction.is_privileged:
                return False
        return True


def _first(chunk: bytes, at: int) -> int:
    """Return where an instruction may begin that has its opcode here: at its prefixes."""
    for _ in range(3):
        if at and chunk[at - 1] in _PREFIXES:
            at -= 1
    return at


def features_of(instruction: Instruction) -> tuple[str, ...]:
    """Return the features that an instruction needs, as /proc/cpuinfo names them."""
    if instruction.code == Code.INVALID or instruction.mnemonic in _harmless():
        return ()
    names = (_feature_names()[feature] for feature in instruction.cpuid_features())
    kernel, baseline = _table()["kernel"], _table()["baseline"]
    return tuple(kernel.get(name, name.lower()) for name in names if name not in baseline)


def implied(features: frozenset[str]) -> frozenset[str]:
    """Return the features that these features imply."""
    more = (other for feature in features for other in _table()["implied"].get(feature, ()))
    return features.union(more)


def _text(instruction: Instruction) -> str:
    return str(Formatter(FormatterSyntax.INTEL).format(instruction))


@cache
def _table() -> dict[str, Any]:
    table = load("x86_64.yml", "fleetbuild.audit")
    return {**table, "baseline": frozenset(table["baseline"])}


@cache
def _harmless() -> frozenset[int]:
    return frozenset(
        getattr(Mnemonic, name) for row in _table()["harmless"] for name in row["mnemonics"]
    )


@cache
def _level_codes() -> dict[int, bool]:
    """Return which codes need a feature of a level, filled as they are met."""
    return {}


@cache
def _only_in_functions() -> frozenset[str]:
    return frozenset(_table()["only_in_functions"])


@cache
def _feature_names() -> dict[int, str]:
    return {getattr(CpuidFeature, name): name for name in dir(CpuidFeature) if name[0].isupper()}
