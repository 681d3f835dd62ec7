"""Read an ELF file within limits: architecture, libraries, symbol versions, code, functions.

In: bytes. Out: an `Elf`, or BrokenElf. A hostile file may name one section 60,000 times, chain
records in a circle, or contain endless strings; common ELF libraries do not guard against that.
"""

from __future__ import annotations

import bisect
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
             243: "riscv"}  # fmt: skip

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")

_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_SHT_DYNAMIC, _SHT_NOBITS, _SHT_VERNEED = 6, 8, 0x6FFFFFFE
_SHF_EXECINSTR, _PF_X, _PT_LOAD, _DT_NEEDED = 4, 1, 1, 1
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC

_LONGEST_NAME = 4096
_SHOWN_NAME = 200  # characters; enough to recognise a mangled name
_MOST_FUNCTIONS = 2_000_000
_MOST_LIBRARIES = 1000
_MOST_VERSIONS = 1000


class BrokenElf(ValueError):
    """The file starts like an ELF file but is damaged."""


@dataclass(frozen=True)
class CodeSection:
    """A piece of machine code and its load address."""

    address: int
    data: bytes


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Elf:
    """The content of an ELF file."""

    arch: str
    needed: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()  # GLIBC_2.34, GLIBCXX_3.4.29, …
    code: tuple[CodeSection, ...] = ()
    fatbins: tuple[bytes, ...] = ()
    functions: tuple[tuple[int, int, str], ...] = ()  # address, size, name; sorted

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

    def symbol_at(self, address: int) -> str | None:
        """Return the name of the function at an address."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start, size, name = self.functions[at]
        return name if address < start + max(size, 1) else None

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _, _ in self.functions]


def read_elf(data: bytes) -> Elf:
    """Read an ELF file; raises BrokenElf if it is damaged."""
    try:
        return _Reader(data).elf()
    except (struct.error, OverflowError) as error:  # an offset may be any 64 bits
        raise BrokenElf("it ends before its headers do") from error


def needed_by(data: bytes) -> tuple[str, ...]:
    """Return only the libraries that an ELF file is linked with."""
    try:
        return _Reader(data).needed()
    except (struct.error, OverflowError) as error:  # an offset may be any 64 bits
        raise BrokenElf("it ends before its headers do") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        if len(data) < 20:
            raise BrokenElf("it ends before its headers do")
        (machine,) = struct.unpack_from("<H" if data[5] != 2 else ">H", data, 18)
        self._arch = _MACHINES.get(machine, f"machine {machine}")
        self._native = data[4:6] == _64_BIT_LITTLE_ENDIAN

    def elf(self) -> Elf:
        if not self._native:  # 32-bit or big-endian: not supported by fleetbuild
            return Elf(arch=self._arch)
        names = self._read_headers()
        return Elf(
            arch=self._arch,
            needed=tuple(self._needed()),
            versions=tuple(self._versions()),
            code=tuple(self._code()),
            fatbins=tuple(self._named(".nv_fatbin", names)),
            functions=tuple(sorted(islice(self._functions(), _MOST_FUNCTIONS))),
        )

    def needed(self) -> tuple[str, ...]:
        if not self._native:
            return ()
        self._read_headers()
        return tuple(self._needed())

    def _read_headers(self) -> int:
        """Read segments and sections; return the offset of the section names."""
        header = _HEADER.unpack_from(self._data)
        self._segments = self._table(_SEGMENT, header[5], header[10], header[9])
        rows = self._table(_SECTION, header[6], header[12], header[11])
        self._sections = [_Section(*row[:7]) for row in rows if row[1] != _SHT_NOBITS]
        self._all = [_Section(*row[:7]) for row in rows]
        if sum(section.size for section in self._sections) > 2 * len(self._data):
            raise BrokenElf("its sections are larger than the file")
        names: int = header[13]
        return names

    def _table(
        self, row: struct.Struct, offset: int, count: int, size: int
    ) -> list[tuple[int, ...]]:
        if count and size != row.size:
            raise BrokenElf("its headers have an odd size")
        return list(row.iter_unpack(self._bytes(offset, count * size)))

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._data):
            raise BrokenElf("it ends before its sections do")
        return self._data[offset : offset + size]

    def _string(self, table: int, offset: int) -> str:
        if table >= len(self._all):
            return ""
        start = self._all[table].offset + offset
        end = self._data.find(b"\0", start, start + _LONGEST_NAME)
        return self._data[start:end].decode("utf-8", "replace") if end >= 0 else ""

    def _whole(self, section: _Section, row: struct.Struct) -> Iterator[tuple[int, ...]]:
        return row.iter_unpack(self._bytes(section.offset, section.size // row.size * row.size))

    def _named(self, name: str, names: int) -> Iterator[bytes]:
        for section in self._sections:
            if self._string(names, section.name) == name:
                yield self._bytes(section.offset, section.size)

    def _needed(self) -> Iterator[str]:
        for section in self._sections:
            if section.kind == _SHT_DYNAMIC:
                rows = self._whole(section, _DYNAMIC)
                names = (value for tag, value in rows if tag == _DT_NEEDED)
                for name in islice(names, _MOST_LIBRARIES):
                    yield self._string(section.link, name)

    def _versions(self) -> Iterator[str]:
        for section in self._sections:
            if section.kind == _SHT_VERNEED:
                yield from islice(self._chain(section), _MOST_VERSIONS)

    def _chain(self, section: _Section) -> Iterator[str]:
        at = section.offset
        for _ in range(_MOST_LIBRARIES):
            _, count, _, first, following = _NEED.unpack_from(self._data, at)
            place = at + first
            for _ in range(count):
                _, _, _, name, step = _NEED_VERSION.unpack_from(self._data, place)
                yield self._string(section.link, name)
                if not step:
                    break
                place += step
            if not following:
                return
            at += following

    def _code(self) -> Iterator[CodeSection]:
        marked = [section for section in self._sections if section.flags & _SHF_EXECINSTR]
        for section in marked:
            yield CodeSection(section.address, self._bytes(section.offset, section.size))
        # Without sections, every executable segment is code.
        for kind, flags, offset, address, _, size, *_ in () if marked else self._segments:
            if kind == _PT_LOAD and flags & _PF_X:
                yield CodeSection(address, self._bytes(offset, size))

    def _functions(self) -> Iterator[tuple[int, int, str]]:
        for section in self._sections:
            if section.kind in _SYMBOL_TABLES:
                for name, info, _, _, value, size in self._whole(section, _SYMBOL):
                    if info & 0xF in _FUNCTIONS and value:
                        yield value, size, self._string(section.link, name)[:_SHOWN_NAME]
