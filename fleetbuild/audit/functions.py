"""The functions of an ELF file, and when each of them runs.

In: an `Elf`. Out: its code as pieces, each a function that runs at load, by default, or behind a
check of the CPU. Functions are known by symbols, by the tables for unwinding, which stripped files
keep, and by calls. What runs at load is followed by direct calls from what the loader starts.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from importlib.resources import files
from itertools import islice, pairwise
from typing import Any, NamedTuple

import yaml

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.elf import Code, Elf, Symbol
from fleetbuild.audit.models import When
from fleetbuild.audit.pieces import Piece, find

_RELA = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_SLOT = struct.Struct("<Q")
_FRAME_HEADER = struct.Struct("<BBBBiI")
_FRAME_ROW = struct.Struct("<ii")
_FRAME = struct.Struct("<IIiI")  # length, CIE, start, size
_USUAL_TABLE = (1, 0x1B, 0x03, 0x3B)  # version; offsets of 32 bits from here, and from the table

_DT_INIT, _DT_INIT_ARRAY, _DT_INIT_ARRAY_SIZE = 12, 25, 27
_DT_PREINIT_ARRAY, _DT_PREINIT_ARRAY_SIZE = 32, 33
_DT_RELA, _DT_RELA_SIZE, _DT_JMPREL, _DT_PLT_SIZE, _DT_SYMTAB = 7, 8, 23, 2, 6
_NO_ENTRY = (0, 2**64 - 1)  # of .ctors and .init_array
_MOST_ROWS = 20_000_000
_MOST_ENTRIES = 1_000_000
_PADDING = 64  # bytes between functions that are not worth a piece


class _Machine(NamedTuple):
    """What differs between architectures."""

    relative: int
    irelative: int
    symbolic: tuple[int, ...]  # a slot with the address of a symbol
    calls_of: Callable[[bytes, int, int, int], Iterator[tuple[int, bool]]]
    stub_slot: Callable[[bytes, int, int], int | None]
    addresses_in: Callable[[bytes, int, int, int], Iterator[int]]
    asks_cpu: Callable[[bytes, int, int], bool]


_MACHINES = {
    "x86_64": _Machine(8, 37, (1, 6, 7), x86.calls_of, x86.stub_slot, x86.addresses_in,
                       x86.asks_cpu),
    "aarch64": _Machine(1027, 1032, (257, 1025, 1026), aarch64.calls_of, aarch64.stub_slot,
                        aarch64.addresses_in, aarch64.asks_cpu),
}  # fmt: skip


# Where the kernel tells the features of the CPU; libdeflate and others read it themselves.
_ASKED_FILES = (b"/proc/self/auxv\0", b"/proc/cpuinfo\0")

_LIBRARY = re.compile(r"(lib\w+?)(?:-[0-9a-f-]+)?\.so\b", re.ASCII)


# The beginnings of mangled names, up to the first word: C++ and older Rust, newer Rust.
_MANGLED = re.compile(
    r"_ZZ*(?P<nested>N[KVrRO]*(?:S[a-z]|S[0-9A-Z]*_)?)?(?=L?\d)"
    r"|(?P<rust>_R)(?:I|N[a-zA-Z]|[MX](?:s[0-9a-zA-Z]*_)?)*C(?:s[0-9a-zA-Z]*_)?(?=u?\d)"
)
_WORD = re.compile(r"L?(\d{1,4})")
_RUST_WORD = re.compile(r"(?:s[0-9a-zA-Z]*_)?u?(\d{1,4})_?")


class Functions:
    """The functions of a file whose architecture is known."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._machine = _MACHINES[elf.arch]
        self._ends: dict[int, int] = {}
        self._names: dict[int, Symbol] = {}
        self._named_guarded: set[int] = set()
        self._global: set[int] = set()
        self._resolvers: set[int] = set()
        self._modules: set[int] = set()
        self._asks = False
        self._read_symbols()
        self._read_frames()
        self._read_relocations()
        self._starts = sorted(self._ends)

    # What there is

    @cached_property
    def asks_cpu(self) -> bool:
        """Return whether the file asks which features the CPU has."""
        data = self._elf.data
        return self._asks_itself or any(
            find(data, path, 0, len(data)) >= 0 for path in _ASKED_FILES
        )

    @cached_property
    def _asks_itself(self) -> bool:
        # Other programs read _ASKED_FILES to count CPUs: there, names of functions say nothing.
        data, ask = self._elf.data, self._machine.asks_cpu
        return self._asks or any(
            ask(data, code.offset, code.offset + code.size) for code in self._elf.code
        )

    def name_at(self, address: int) -> str | None:
        """Return the name of the function at an address."""
        start = self._start_before(address)
        if start is None or address >= max(self._ends[start], start + 1):
            return None
        symbol = self._names.get(start)
        return self._elf.name_of(symbol) if symbol else None

    def pieces(self) -> Iterator[Piece]:
        """Yield the code in order: each function, and what lies between functions."""
        load, guarded = self.at_load, self._guarded
        for code in self._elf.code:
            first = bisect.bisect_left(self._starts, code.address)
            last = bisect.bisect_left(self._starts, code.end)
            inside = self._starts[first:last]
            shift, reached = code.address - code.offset, code.address
            for start, following in pairwise([*inside, code.end]):
                yield from self._between(code, reached, start, sole=not inside)
                end = min(max(self._ends[start], start), following)
                end = following if following - end < _PADDING or end == start else end
                when: When = "default"
                if start in load:
                    when = "load"
                elif start in guarded:
                    when = "guarded"
                local = start not in self._global
                yield Piece(start - shift, end - shift, shift, when, known=True, local=local)
                reached = end
            yield from self._between(code, reached, code.end, sole=not inside)

    def _between(self, code: Code, start: int, end: int, *, sole: bool) -> Iterator[Piece]:
        shift = code.address - code.offset
        if code.marked and end > start:
            yield Piece(start - shift, end - shift, shift, "default", known=sole, local=True)

    @property
    def exported(self) -> int:
        """Return how many functions other files can call."""
        return len(self._global)

    # When it runs

    @cached_property
    def at_load(self) -> frozenset[int]:
        """Return the functions that run when the file is loaded, or imported by Python."""
        roots = {*self._init_entries, *self._resolvers, *self._modules}
        reached = {start for start in roots if self._add(start)}
        self._starts = sorted(self._ends)
        open_ends = list(reached)
        while open_ends:
            start = open_ends.pop()
            for target in self._called_by(start):
                if target not in reached and target not in self._guarded:
                    reached.add(target)
                    open_ends.append(target)
        return frozenset(reached)

    @cached_property
    def _guarded(self) -> frozenset[int]:
        """Return the functions that run only after a check of the CPU."""
        chosen = {
            target
            for start in self._resolvers
            for target in self._taken_by(start)
            if target in self._ends and not self._is_default(target)
        }
        return frozenset(chosen | (self._named_guarded if self._asks_itself else set()))

    def _taken_by(self, start: int) -> Iterator[int]:
        place = self._elf.offset_of(start)
        end = self._ends.get(start, start)
        if place is not None:
            yield from self._machine.addresses_in(
                self._elf.data, place, place + end - start, start - place
            )

    def _is_default(self, start: int) -> bool:
        symbol = self._names.get(start)
        return symbol is not None and self._elf.name_of(symbol).endswith(".default")

    def _called_by(self, start: int) -> Iterator[int]:
        place = self._elf.offset_of(start)
        if place is None:
            return
        end = self._end_of(start)
        calls = self._machine.calls_of(self._elf.data, place, place + end - start, start - place)
        for address, stored in calls:
            target = self._slots.get(address) if stored else self._resolved(address)
            if target is not None and target in self._ends:
                yield target

    def _resolved(self, address: int) -> int | None:
        """Return where a call ends that may go through a stub of the linker."""
        if address in self._names:
            return address
        place = self._elf.offset_of(address)
        if place is None:
            return None
        slot = self._machine.stub_slot(self._elf.data, place, address)
        return address if slot is None else self._slots.get(slot)

    def _end_of(self, start: int) -> int:
        at = bisect.bisect_right(self._starts, start)
        following = self._starts[at] if at < len(self._starts) else self._code_end(start)
        end = self._ends[start]
        return min(end, following) if end > start else following

    def _code_end(self, start: int) -> int:
        code = self._code_at(start)
        return code.end if code else start

    def _code_at(self, address: int) -> Code | None:
        codes = self._elf.code
        at = bisect.bisect_right(codes, address, key=lambda code: code.address) - 1
        return codes[at] if at >= 0 and address < codes[at].end else None

    def _start_before(self, address: int) -> int | None:
        at = bisect.bisect_right(self._starts, address) - 1
        return self._starts[at] if at >= 0 else None

    # Where it is read from

    def _add(self, start: int, end: int = 0) -> bool:
        if self._code_at(start) is None:
            return False
        self._ends[start] = max(self._ends.get(start, 0), end, start)
        return True

    def _read_symbols(self) -> None:
        asking = _asking()
        for symbol in self._elf.symbols():
            name = self._elf.name_of(symbol)
            if not self._add(symbol.address, symbol.address + symbol.size):
                continue
            self._names.setdefault(symbol.address, symbol)
            if not symbol.local:
                self._global.add(symbol.address)
            if _is_guarded(name):
                self._named_guarded.add(symbol.address)
            if symbol.ifunc:
                self._resolvers.add(symbol.address)
            if name.startswith("PyInit_"):
                self._modules.add(symbol.address)
            self._asks = self._asks or name in asking
        self._asks = self._asks or any(
            self._elf.name_of(symbol) in asking for symbol in self._elf.symbols(defined=False)
        )

    def _read_frames(self) -> None:
        """Read the table for unwinding: it names every function that a compiler made."""
        for address in self._elf.frame_tables():
            rows = list(islice(self._elf.rows_at(_FRAME_HEADER, address, _FRAME_HEADER.size), 1))
            if not rows or rows[0][:4] != _USUAL_TABLE:
                continue
            count = rows[0][5]
            table = self._elf.rows_at(_FRAME_ROW, address + _FRAME_HEADER.size, 8 * count)
            for start, frame in table:
                size = self._frame_size(address + frame)
                self._add(address + start, address + start + size)

    def _frame_size(self, address: int) -> int:
        place = self._elf.offset_of(address)
        if place is None or place + _FRAME.size > len(self._elf.data):
            return 0
        size: int = _FRAME.unpack_from(self._elf.data, place)[3]
        return size

    def _read_relocations(self) -> None:
        """Note what the loader writes: targets of calls between functions, entries of arrays."""
        dynamic, machine = self._elf.dynamic, self._machine
        self._slots: dict[int, int] = {}
        self._written: dict[int, int] = {}
        arrays = list(self._arrays())
        low = min((start for start, _ in arrays), default=0)
        high = max((end for _, end in arrays), default=0)
        tables = [
            (dynamic.get(_DT_RELA), dynamic.get(_DT_RELA_SIZE, 0)),
            (dynamic.get(_DT_JMPREL), dynamic.get(_DT_PLT_SIZE, 0)),
        ]
        for address, size in tables:
            rows = self._elf.rows_at(_RELA, address, size) if address else iter(())
            for place, info, addend in islice(rows, _MOST_ROWS):
                kind = info & 0xFFFFFFFF
                if kind == machine.relative:
                    if low <= place < high:
                        self._written[place] = addend
                elif kind == machine.irelative:
                    if self._add(addend):
                        self._resolvers.add(addend)
                elif kind in machine.symbolic and (target := self._symbol(info >> 32)):
                    self._slots[place] = target + addend
                    if low <= place < high:
                        self._written[place] = target + addend

    def _symbol(self, index: int) -> int:
        """Return the address of a symbol of this file; 0 if it is another file's."""
        table = self._elf.dynamic.get(_DT_SYMTAB, 0)
        for _, _, _, section, value, _ in self._elf.rows_at(_SYMBOL, table + 24 * index, 24):
            return int(value) if section else 0
        return 0

    @cached_property
    def _init_entries(self) -> frozenset[int]:
        found = {self._elf.dynamic[_DT_INIT]} if _DT_INIT in self._elf.dynamic else set()
        for start, end in self._arrays():
            rows = self._elf.rows_at(_SLOT, start, end - start)
            for at, (stored,) in enumerate(islice(rows, _MOST_ENTRIES)):
                found.add(self._written.get(start + 8 * at, stored))
        return frozenset(found.difference(_NO_ENTRY))

    def _arrays(self) -> Iterator[tuple[int, int]]:
        dynamic = self._elf.dynamic
        for tag, size in (
            (_DT_INIT_ARRAY, _DT_INIT_ARRAY_SIZE), (_DT_PREINIT_ARRAY, _DT_PREINIT_ARRAY_SIZE),
        ):  # fmt: skip
            if tag in dynamic:
                yield dynamic[tag], dynamic[tag] + dynamic.get(size, 0)
        for section in self._elf.named(".ctors"):
            yield section.address, section.address + section.size


@cache
def _table() -> dict[str, Any]:
    text = files("fleetbuild.audit").joinpath("data/cpu_code.yml").read_text("utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def own_name(symbol: str) -> str:
    """Return a symbol up to its first template argument, without parameters: its scopes and name.

    `Tree<dist_avx2>::search` is not a function for AVX2; `avx2::search` and `search.avx2` are.
    """
    start = _MANGLED.match(symbol)
    if start is None:
        return symbol
    words, at, word = [], start.end(), _RUST_WORD if start["rust"] else _WORD
    while (length := word.match(symbol, at)) and (start["rust"] or start["nested"] or not words):
        at = length.end() + int(length[1])
        words.append(symbol[length.end() : at].partition("$LT$")[0])
    clone = symbol[at:].partition(".")[2]
    return "::".join(words) + (f".{clone}" if clone else "")


def _is_guarded(symbol: str) -> bool:
    """Return whether a function's name says that it is entered only after a check of the CPU."""
    name = own_name(symbol)
    lower = name.lower()
    if any(word in lower for word in _guards().words) and _guards().levels.search(name):
        return True
    if any(part in symbol for part in _guards().parts):
        return True
    if name.startswith("bli_") and _guards().blis.search(name):
        return True
    prefix = _guards().prefixes.match(name)
    return name.startswith(_guards().beginnings, prefix.end() if prefix else 0)


class _Guards(NamedTuple):
    words: tuple[str, ...]
    levels: re.Pattern[str]
    blis: re.Pattern[str]
    beginnings: tuple[str, ...]
    parts: tuple[str, ...]
    prefixes: re.Pattern[str]


@cache
def _guards() -> _Guards:
    table = _table()
    either = "|".join(sorted(map(_any_case, table["levels"]), key=len, reverse=True))
    # AVX2, opt_AVX2, 4avx2E, KernelAvx2Impl; not in the middle of a word.
    levels = rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?:{either})(?![a-z])|\.arch[_=-]"
    processors = "|".join(table["processors"])
    levels += rf"|_(?:{processors.upper()})(?:[.]|$)"
    rows = [row for row in table["libraries"] if row]
    return _Guards(
        words=(*(word.lower() for word in table["words"]), ".arch"),
        levels=re.compile(levels),
        blis=re.compile(rf"_(?:{processors}|zen[2-9])(?=_|$)"),
        beginnings=tuple(text for row in rows for text in row.get("beginnings", ())),
        parts=tuple(text for row in rows for text in row.get("parts", ())),
        prefixes=re.compile(table["prefixes"]),
    )


def _any_case(pattern: str) -> str:
    return f"{pattern}|{pattern.upper()}|{pattern.capitalize()}"


def is_dispatcher(path: str) -> bool:
    """Return whether a file is a library that chooses functions by the CPU through tables."""
    match = _LIBRARY.match(path.rpartition("/")[2])
    return match is not None and match[1] in _table()["dispatchers"]


@cache
def _asking() -> frozenset[str]:
    return frozenset(_table()["asks_cpu"])
