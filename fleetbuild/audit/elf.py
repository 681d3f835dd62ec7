"""Read an ELF file within limits: architecture, libraries, symbol versions, code, functions.

In: bytes. Out: an `Elf`, or one of DAMAGED. What the loader reads counts: segments and the dynamic
table come before sections, which a file may lack or forge. A hostile file may name one section
60,000 times, chain records in a circle, or contain endless strings; common ELF libraries do not
guard against that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

from fleetbuild.text import version_key

MAGIC = b"\x7fELF"
_64_BIT_LITTLE_ENDIAN = b"\x02\x01"
_MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
             190: "cuda", 243: "riscv"}  # fmt: skip

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")
_NOTE = struct.Struct("<III")

_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_SHT_PROGBITS, _SHT_DYNAMIC, _SHT_NOBITS, _SHT_VERNEED = 1, 6, 8, 0x6FFFFFFE
_SHF_EXECINSTR, _PF_X, _PF_W = 4, 1, 2
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_EH_FRAME = 1, 2, 0x6474E550
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
LABELS = (0,)  # STT_NOTYPE: assembly that gives no type, and much else
_IFUNC = 10

_PAGE = 4096  # the smallest of any kernel
_LONGEST_NAME = 4096
_SHOWN_NAME = 200  # characters; enough to recognise a mangled name
_MOST_SYMBOLS = 2_000_000
_GPU_SECTIONS = (".nv_fatbin", "__nv_relfatbin")


class BrokenElf(ValueError):
    """The file starts like an ELF file but is damaged."""


# What reading any part of a damaged file raises: an offset may be any 64 bits.
DAMAGED = (ValueError, struct.error, OverflowError)


class Section(NamedTuple):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class Segment(NamedTuple):
    """A segment that the loader maps."""

    executable: bool
    offset: int
    address: int
    size: int


@dataclass(frozen=True)
class Code:
    """A piece of machine code: where it is in the file, and where in memory."""

    address: int
    offset: int
    size: int
    marked: bool  # by a section as code; else only functions in it are code

    @property
    def end(self) -> int:
        """Return the address after it."""
        return self.address + self.size


class Symbol(NamedTuple):
    """A function; `name` is an offset in the file."""

    address: int
    size: int
    name: int
    ifunc: bool
    local: bool


class Elf:
    """An ELF file. Each part is read when it is asked for; raises one of DAMAGED."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if len(data) < _HEADER.size:
            raise BrokenElf("it ends before its headers do")
        (machine,) = struct.unpack_from("<H" if data[5] != 2 else ">H", data, 18)
        self.arch = _MACHINES.get(machine, f"machine {machine}")
        # 32-bit and big-endian files are named and not read.
        self.readable = data[4:6] == _64_BIT_LITTLE_ENDIAN
        self._headers: list[tuple[int, ...]] = []
        self.sections: list[Section] = []
        self._names = 0
        if self.readable:
            self._read_headers()

    def _read_headers(self) -> None:
        header = _HEADER.unpack_from(self.data)
        self._headers = self._table(_SEGMENT, header[5], header[10], header[9])
        rows = self._table(_SECTION, header[6], header[12], header[11])
        self.sections = [Section(*row[:7]) for row in rows]
        self._names = header[13]
        stored = sum(section.size for section in self.sections if section.kind != _SHT_NOBITS)
        mapped = sum(row[5] for row in self._headers if row[0] == _PT_LOAD)
        if max(stored, mapped) > 2 * len(self.data):
            raise BrokenElf("its sections are larger than the file")

    # What the loader maps

    @cached_property
    def segments(self) -> list[Segment]:
        """Return the loaded segments, by address; an object file has its sections instead."""
        loaded = [
            Segment(bool(flags & _PF_X), offset, address, size)
            for kind, flags, offset, address, _, size, *_ in self._headers
            if kind == _PT_LOAD
        ]
        found = loaded or [
            Segment(bool(s.flags & _SHF_EXECINSTR), s.offset, s.address or s.offset, s.size)
            for s in self.sections
            if s.flags & 2 and s.kind != _SHT_NOBITS  # SHF_ALLOC
        ]
        for segment in found:
            self._check(segment.offset, segment.size)
        found.sort(key=lambda segment: segment.address)
        if loaded and self.arch != "cuda" and any(map(_covers, found[1:], found)):
            raise BrokenElf("its segments overlap")
        return found

    @cached_property
    def writable(self) -> list[tuple[int, int]]:
        """Return the addresses of variables, zeroed ones without bytes in the file included."""
        return [
            (address, address + size)
            for kind, flags, _, address, _, _, size, *_ in self._headers
            if kind == _PT_LOAD and flags & _PF_W
        ]

    def offset_of(self, address: int) -> int | None:
        """Return where in the file the byte at an address is."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        return None

    @cached_property
    def code(self) -> tuple[Code, ...]:
        """Return the executable pieces, by address."""
        marked = [s for s in self.sections if s.flags & _SHF_EXECINSTR and s.kind != _SHT_NOBITS]
        found: list[Code] = []
        for segment in self.segments:
            if segment.executable:
                found += _pieces(segment, marked)
        return tuple(found)

    # What the dynamic table says

    @cached_property
    def _dynamic_rows(self) -> tuple[list[tuple[int, ...]], int | None]:
        """Return the dynamic table, and where in the file its strings are."""
        for kind, _, offset, _, _, size, *_ in self._headers:
            if kind == _PT_DYNAMIC:
                rows = self._rows(_DYNAMIC, offset, size)
                strings = next((value for tag, value in rows if tag == _DT_STRTAB), None)
                return rows, None if strings is None else self.offset_of(strings)
        for section in self.sections:
            if section.kind == _SHT_DYNAMIC:
                return self._rows(_DYNAMIC, section.offset, section.size), self._strings(section)
        return [], None

    @cached_property
    def dynamic(self) -> dict[int, int]:
        """Return the values of the dynamic table; of a tag that repeats, the last one."""
        return dict(self._dynamic_rows[0])  # type: ignore[arg-type]

    def _dynamic_texts(self, *tags: int) -> tuple[str, ...]:
        rows, base = self._dynamic_rows
        # The sum wraps around, as it does for the loader.
        places = ((base + value) % 2**64 for tag, value in rows if base is not None and tag in tags)
        return tuple(map(self.string, places))

    def dynamic_name(self, name: int) -> str:
        """Return a name of the dynamic symbols by its offset in their strings."""
        strings = self._dynamic_rows[1]
        return "" if strings is None else self.string(strings + name)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Return the libraries that it is linked with."""
        return self._dynamic_texts(_DT_NEEDED)

    @cached_property
    def search_paths(self) -> tuple[str, ...]:
        """Return the folders of RPATH and RUNPATH, where the loader looks for its libraries."""
        texts = self._dynamic_texts(_DT_RPATH, _DT_RUNPATH)
        return tuple(dict.fromkeys(path for text in texts for path in text.split(":")))

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Return the symbol versions that it needs: GLIBC_2.34, GLIBCXX_3.4.29, …"""
        return tuple(
            name
            for section in self.sections
            if section.kind == _SHT_VERNEED
            for name in self._needed_versions(section)
        )

    @property
    def libc(self) -> Literal["glibc", "musl"] | None:
        """Return the C library that it is linked with."""
        if any(name.startswith(("libc.musl", "ld-musl")) for name in self.needed):
            return "musl"
        glibc = "libc.so.6" in self.needed or self.highest("GLIBC") is not None
        return "glibc" if glibc else None

    def highest(self, prefix: str) -> str | None:
        """Return the highest required version of GLIBC or GLIBCXX."""
        found = [v.removeprefix(prefix + "_") for v in self.versions if v.startswith(prefix + "_")]
        return max((v for v in found if v[:1].isdigit()), key=version_key, default=None)

    # Sections and symbols

    def named(self, *names: str) -> Iterator[Section]:
        """Yield the sections of these names that have bytes in the file."""
        for section in self.sections:
            if section.kind != _SHT_NOBITS and self.section_name(section) in names:
                self._check(section.offset, section.size)
                yield section

    def section_name(self, section: Section) -> str:
        """Return a section's name."""
        if self._names >= len(self.sections):
            return ""
        return self.string(self.sections[self._names].offset + section.name)

    @property
    def gpu_sections(self) -> list[tuple[int, int]]:
        """Return where in the file the sections are that hold GPU code alone."""
        found = self.named(*_GPU_SECTIONS) if self.readable else iter(())
        return [(section.offset, section.offset + section.size) for section in found]

    def symbols(self, *kinds: int, defined: bool = True) -> Iterator[Symbol]:
        """Yield the symbols of these kinds, or all that are defined elsewhere."""
        tables = (section for section in self.sections if section.kind in _SYMBOL_TABLES)
        rows = (
            (row, self._strings(section))
            for section in tables
            for row in self._stream(_SYMBOL, section.offset, section.size)
        )
        for (name, info, _, index, value, size), strings in islice(rows, _MOST_SYMBOLS):
            if (index != 0) == defined and strings is not None:
                kind = info & 0xF
                if (kind in kinds and value) or not defined:
                    yield Symbol(value, size, strings + name, kind == _IFUNC, info >> 4 == 0)

    def frame_tables(self) -> list[int]:
        """Return the addresses of the tables for unwinding."""
        return [row[3] for row in self._headers if row[0] == _PT_GNU_EH_FRAME]

    def notes(self, segment: int) -> Iterator[tuple[int, bytes]]:
        """Yield the type and content of each note in the segments of a kind."""
        for kind, _, offset, _, _, size, *_ in self._headers:
            at, end = offset, offset + size if kind == segment else 0
            while at + _NOTE.size <= end:
                name, length, what = _NOTE.unpack(self.bytes_at(at, _NOTE.size))
                at += _NOTE.size + (name + 3) // 4 * 4
                yield what, self.bytes_at(at, length)
                at += (length + 3) // 4 * 4

    def name_of(self, symbol: Symbol) -> str:
        """Return a symbol's name, at most so long that it can be shown."""
        return self.string(symbol.name)[:_SHOWN_NAME]

    # Bytes

    def string(self, offset: int) -> str:
        """Return the text at an offset in the file; empty if it does not end."""
        offset = min(offset, len(self.data))  # find takes no larger number
        end = self.data.find(b"\0", offset, offset + _LONGEST_NAME)
        return self.data[offset:end].decode("utf-8", "replace") if end >= 0 else ""

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the file."""
        self._check(offset, size)
        return self.data[offset : offset + size]

    def rows_at(self, row: struct.Struct, address: int, size: int) -> Iterator[tuple[int, ...]]:
        """Yield the rows of a table at an address; none if the file does not hold it."""
        offset = self.offset_of(address)
        return iter(()) if offset is None else self._stream(row, offset, size)

    def _stream(self, row: struct.Struct, offset: int, size: int) -> Iterator[tuple[int, ...]]:
        self._check(offset, size)
        for at in range(offset, offset + size, row.size * 4096):
            end = min(at + row.size * 4096, offset + size // row.size * row.size)
            yield from row.iter_unpack(self.data[at:end])

    def _rows(self, row: struct.Struct, offset: int, size: int) -> list[tuple[int, ...]]:
        return list(self._stream(row, offset, size))

    def _table(
        self, row: struct.Struct, offset: int, count: int, size: int
    ) -> list[tuple[int, ...]]:
        if count and size != row.size:
            raise BrokenElf("its headers have an odd size")
        return self._rows(row, offset, count * size)

    def _check(self, offset: int, size: int) -> None:
        if offset + size > len(self.data):
            raise BrokenElf("it ends before its sections do")

    def _strings(self, section: Section) -> int | None:
        return self.sections[section.link].offset if section.link < len(self.sections) else None

    def _needed_versions(self, section: Section) -> Iterator[str]:
        strings, at = self._strings(section) or 0, section.offset
        while True:
            _, count, _, first, following = _NEED.unpack_from(self.data, at)
            place = at + first
            for _ in range(count):
                _, _, _, name, step = _NEED_VERSION.unpack_from(self.data, place)
                yield self.string(strings + name)
                if not step:
                    break
                place += step
            if not following:
                return
            at += following


def _pieces(segment: Segment, marked: list[Section]) -> Iterator[Code]:
    """Split an executable segment by the sections that are marked as code.

    If none is, all of it is code, and so is what lies between two of them: there the mark is
    missing, or cleared to hide code. Before and after them old linkers put headers and constants.
    """
    end = segment.offset + segment.size
    inside = sorted(
        (max(s.offset, segment.offset), min(s.offset + s.size, end))
        for s in marked
        if s.offset < end and s.offset + s.size > segment.offset and s.size
    )
    shift, at = segment.address - segment.offset, segment.offset
    for start, stop in inside:
        if start > at:
            yield Code(at + shift, at, start - at, marked=at > segment.offset)
        if stop > max(start, at):
            yield Code(max(start, at) + shift, max(start, at), stop - max(start, at), marked=True)
        at = max(at, stop)
    if end > at:
        yield Code(at + shift, at, end - at, marked=not inside)


def _covers(later: Segment, segment: Segment) -> bool:
    """Return whether the loader puts a segment's pages in the place of bytes before it."""
    same = later.address - later.offset == segment.address - segment.offset
    begin = later.address if same else later.address // _PAGE * _PAGE
    return begin < segment.address + segment.size
