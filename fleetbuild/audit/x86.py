"""Find the CPU features that x86-64 machine code uses, and the functions that it calls.

To decode each instruction of a large library takes minutes. So a search over the bytes first finds
where an instruction beyond the baseline may be. Such a place is decoded on its own, and counts if
decoding from the start of its function comes to the same instruction.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from iced_x86 import (
    Code,
    CpuidFeature,
    Decoder,
    Formatter,
    FormatterSyntax,
    Instruction,
    Mnemonic,
)

from fleetbuild.audit.models import FeatureUse
from fleetbuild.audit.pieces import Chunk, Found, Kind, Piece, chunks

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
    prefix = (code[at + 1] & 7) << 16 | (code[at + 2] & 0x87) << 8 | code[at + 3] & 0xF0
    return prefix << 9 | code[at + 4] << 1 | (code[at + 5] >= 0xC0)


# Pattern, and the bits there that decide which features the instruction needs.
_CANDIDATES: list[tuple[re.Pattern[bytes], _Key | None]] = [
    (re.compile(rb"\xc5(?=." + _VEX_OPCODES + rb")", re.S), _vex2),
    (re.compile(rb"\xc4(?=" + _class(v for v in range(256) if v & 31 in (1, 2, 3)) + rb")"), _vex3),
    (  # EVEX: one bit of the first byte is 0, one of the second is 1
        re.compile(
            rb"\x62(?="
            + _class(v for v in range(256) if not v & 8 and v & 7)
            + _class(v for v in range(256) if v & 4)
            + rb")"
        ),
        _evex,
    ),
    (re.compile(rb"\x8f(?=" + _class(v for v in range(256) if v & 31 in (8, 9, 10)) + rb")"), None),
    (re.compile(rb"\x0f(?=[\x38\x3a\x0f\xae\xc7]|\x01[\xc0-\xff])"), None),
    (re.compile(rb"[\xf2\xf3][\x40-\x4f]?\x0f(?=[\x12\x16\x2b\x78\x79\xb8\xbd\xf0])"), None),
    (re.compile(rb"[\x66\xf2][\x40-\x4f]?\x0f(?=[\x78\x79\x7c\x7d\xd0])"), None),
    (re.compile(rb"[\xdb\xdd\xdf](?=" + _MEMORY_1 + rb")"), None),  # fisttp
]
_CALLS = re.compile(
    rb"[\xe8\xe9](?=(.{4}))|\x0f[\x80-\x8f](?=(.{4}))|\xff[\x15\x25](?=(.{4}))", re.S
)
_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(.{4})", re.S)
_ADDRESS = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(.{4}))", re.S)
_CPUID = re.compile(rb"\x0f\xa2")


def used_features(data: bytes, pieces: Iterable[Piece]) -> Iterator[Found]:
    """Yield the first use of each feature beyond the baseline, for each kind of piece."""
    search = _Search(data)
    for chunk in chunks(data, pieces, margin=_LONGEST):
        yield from search.chunk(chunk)


def calls_of(data: bytes, start: int, end: int, shift: int) -> Iterator[tuple[int, bool]]:
    """Yield what a function calls: an address, and whether the target is stored there."""
    code = data[start:end]
    for match in _CALLS.finditer(code):
        displacement = next(filter(None, match.groups()))
        target = (
            start + shift + match.end() + 4 + int.from_bytes(displacement, "little", signed=True)
        )
        yield target, code[match.start()] == 0xFF


def stub_slot(data: bytes, offset: int, address: int) -> int | None:
    """Return where the stub of the linker at an address has its target stored."""
    match = _STUB.match(data, offset, offset + _LONGEST)
    if match is None:
        return None
    return address + match.end() - offset + int.from_bytes(match[1], "little", signed=True)


def addresses_in(data: bytes, start: int, end: int, shift: int) -> Iterator[int]:
    """Yield the addresses that a function takes, as a resolver does to return one of them."""
    for match in _ADDRESS.finditer(data, start, end):
        yield match.end() + 4 + shift + int.from_bytes(match[1], "little", signed=True)


def asks_cpu(data: bytes, start: int, end: int) -> bool:
    """Return whether code contains CPUID."""
    return any(
        Decoder(64, data[match.start() : match.start() + 2]).decode().mnemonic == Mnemonic.CPUID
        for match in _CPUID.finditer(data, start, end)
    )


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
                if self._unseen(decoder, at if key else _first(chunk.data, at), piece.kind):
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

    def _unseen(self, decoder: Decoder, at: int, kind: Kind) -> bool:
        if at >= decoder.max_position:
            return False
        decoder.position = at
        decoder.decode_out(self._instruction)
        return not self._found[kind].issuperset(self._of(self._instruction))

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
        for feature in self._of(instruction):
            if feature in self._found[piece.kind]:
                continue
            if piece.known or (feature not in _only_in_functions() and self._stream.sure()):
                self._found[piece.kind].add(feature)
                use = FeatureUse(
                    feature=feature,
                    when=piece.when,
                    instruction=_text(instruction),
                    address=instruction.ip,
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
        self._begin = self._end = start
        self._window = end

    def covering(self, place: int) -> Instruction | None:
        """Return the instruction that covers a place, if it is a valid one."""
        if place < self._begin:
            near = place - self.piece.start <= _WINDOW
            self._start_at(self.piece.start if near else place - _WINDOW // 2)
        far = place - self._end > _WINDOW
        if far or (place > self._window - _LONGEST and self._window < self.piece.end):
            self._start_at(max(self.piece.start, place - _WINDOW // 2))
        while self._end <= place and self._decoder.can_decode:
            self._decoder.decode_out(self._instruction)
            self._begin, self._end = self._end, self._end + self._instruction.len
            invalid = self._instruction.code == Code.INVALID
            self._valid = 0 if invalid else self._valid + 1
        return self._instruction if self._valid and self._end > place else None

    def sure(self) -> bool:
        """Return whether the instructions around the last one are valid, too."""
        if self._valid < _SURE_BEFORE:
            return False
        code = self._data[self._end : self._end + _LONGEST * _SURE_AFTER]
        following = Decoder(64, code[: max(0, self.piece.end - self._end)])
        for _ in range(_SURE_AFTER):
            if not following.can_decode:
                break
            if following.decode().code == Code.INVALID:
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
    text = files("fleetbuild.audit").joinpath("data/x86_64.yml").read_text("utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return {**table, "baseline": frozenset(table["baseline"])}


@cache
def _harmless() -> frozenset[int]:
    return frozenset(
        getattr(Mnemonic, name) for row in _table()["harmless"] for name in row["mnemonics"]
    )


@cache
def _only_in_functions() -> frozenset[str]:
    return frozenset(_table()["only_in_functions"])


@cache
def _feature_names() -> dict[int, str]:
    return {getattr(CpuidFeature, name): name for name in dir(CpuidFeature) if name[0].isupper()}
