"""Find the GPU code of a file: for which SMs, and which kernels.

Kernels are named by the sections of machine code (`.text.KERNEL`), which is ELF itself, and by the
entries of PTX. The format of fat binaries was found by experiments with nvcc 12 and 13.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fleetbuild.audit.elf import DAMAGED, MAGIC, Elf
from fleetbuild.audit.models import Kernels
from fleetbuild.audit.pieces import find
from fleetbuild.hardware.gpus import sm_order

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, size of the entries
_MAGIC = 0xBA55ED50
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
_ENTRY = struct.Struct("<HHIQ")  # kind, -, header size, size of the code
_PACKED_AT, _ARCH_AT, _FLAGS_AT, _UNPACKED_AT = 16, 28, 40, 56
_ENTRY_MIN = _FLAGS_AT + 8
_PTX, _SASS = 1, 2
_SUFFIXES = {0x100000: "a", 0x200000: "f"}  # one SM only; one family of SMs
_LZ4, _ZSTD = 0x2000, 0x8000
_LARGEST = 256 * 2**20  # bytes of one entry
_CUDA = 190
_ARCH_OPTION = re.compile(rb"-arch[ =]sm_\d+([af])\b")
_ENTRY_OF_PTX = re.compile(rb"\.entry\s+([\w$.]{1,4096})")


class BrokenFatbin(ValueError):
    """The section does not match its headers."""


class CannotUnpackError(Exception):
    """An entry is compressed, and what decompresses it is not installed."""


@dataclass(frozen=True)
class GpuCode:
    """One entry of GPU code: its SM and kind; `code` is packed as `flags` say."""

    sm: str  # "8.6", "9.0a"
    ptx: bool
    code: bytes = b""
    flags: int = 0
    size: int = 0  # unpacked

    @property
    def spelled(self) -> str:
        """Return the SM as in TORCH_CUDA_ARCH_LIST."""
        return f"{self.sm}+PTX" if self.ptx else self.sm

    @cached_property
    def kernels(self) -> frozenset[str]:
        """Return the names of its kernels; raises CannotUnpackError."""
        try:
            code = self._unpacked()
        except CannotUnpackError:
            raise
        except Exception as error:
            raise CannotUnpackError("it is damaged") from error
        if self.ptx:
            return frozenset(name.decode("ascii") for name in _ENTRY_OF_PTX.findall(code))
        return kernels_of(code)

    def _unpacked(self) -> bytes:
        if not self.flags & (_LZ4 | _ZSTD):
            return self.code
        if self.size > _LARGEST:
            raise CannotUnpackError(f"it unpacks to {self.size} bytes")
        try:
            if self.flags & _ZSTD:
                import zstandard  # noqa: PLC0415 (optional)

                whole: bytes = zstandard.ZstdDecompressor().decompress(self.code, self.size)
                return whole
            import lz4.block  # noqa: PLC0415 (optional)

            unpacked: bytes = lz4.block.decompress(self.code, uncompressed_size=self.size)
        except ImportError as error:
            raise CannotUnpackError(f"{error.name} is not installed") from error
        return unpacked


@dataclass(frozen=True)
class GpuNeeds:
    """The GPU code of a file."""

    sms: tuple[str, ...]
    ptx: tuple[str, ...]
    kernels: tuple[Kernels, ...]
    unread: tuple[str, ...]


def gpu_needs(data: bytes, sections: Iterable[tuple[int, int]]) -> GpuNeeds:
    """Return what GPU code a file has: in its sections for it, and anywhere else.

    `sections` are the (start, end) of sections that hold nothing else.
    """
    codes: dict[str, set[str]] = defaultdict(set)
    sms: set[str] = set()
    ptx: set[str] = set()
    unread: dict[str, int] = defaultdict(int)
    for container in containers(data, sections):
        unknown, names = set(), set()
        for entry in container:
            (ptx if entry.ptx else sms).add(entry.sm)
            try:
                for name in entry.kernels:
                    codes[name].add(entry.spelled)
                    names.add(name)
            except CannotUnpackError as error:
                unknown.add(entry.spelled)
                unread[f"kernels for SM {entry.spelled}: {error}"] += 1
        for name in names:  # from one source: what cannot be read most likely has them, too
            codes[name] |= unknown
    return GpuNeeds(
        sms=tuple(sorted(sms, key=sm_order)),
        ptx=tuple(sorted(ptx, key=sm_order)),
        kernels=_grouped(codes),
        unread=tuple(f"{what} ({times} times)" for what, times in sorted(unread.items())),
    )


def containers(data: bytes, sections: Iterable[tuple[int, int]]) -> Iterator[list[GpuCode]]:
    """Yield the entries of each fat binary, and machine code that is in none, one by one."""
    at = 0
    for start, end in [*sorted(sections), (len(data), len(data))]:
        yield from _hidden(data, at, start)
        if start >= at:
            yield from _section(data, start, end)
        at = max(at, end)


def gpu_code(data: bytes, start: int = 0, end: int | None = None) -> Iterator[GpuCode]:
    """Yield the GPU code entries in a section that holds fat binaries."""
    for container in _section(data, start, len(data) if end is None else end):
        yield from container


def kernels_of(cubin: bytes) -> frozenset[str]:
    """Return the kernels of machine code for a GPU; empty if it is damaged."""
    try:
        elf = Elf(cubin)
        names = {elf.section_name(section) for section in elf.sections}
    except DAMAGED:
        return frozenset()
    code = {name.removeprefix(".text.") for name in names if name.startswith(".text.")}
    # Kernels have parameters; what else has code is called by them.
    return frozenset(name for name in code if f".nv.constant0.{name}" in names)


def sm_of(cubin: bytes) -> str | None:
    """Return the SM of machine code for a GPU, such as 10.0a; None if it is not that."""
    if not _is_cubin(cubin[:64]):
        return None
    (flags,) = struct.unpack_from("<I", cubin, 48)
    arch = flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF  # by the version of its ABI
    return f"{arch // 10}.{arch % 10}{_variant(cubin)}"


def _is_cubin(header: bytes) -> bool:
    return len(header) == 64 and struct.unpack_from("<H", header, 18) == (_CUDA,)


def _variant(cubin: bytes) -> str:
    """Return a or f as ptxas noted its -arch: the header does not tell sm_100a from sm_100."""
    try:
        notes = [
            cubin[section.offset : section.offset + section.size]
            for section in Elf(cubin).named(".note.nv.tkinfo")
        ]
    except DAMAGED:
        return ""
    found = (_ARCH_OPTION.search(note) for note in notes)
    return next((match[1].decode("ascii") for match in found if match), "")


def _hidden(data: bytes, at: int, end: int) -> Iterator[list[GpuCode]]:
    """Yield GPU code between other data."""
    after = at
    while (at := find(data, _MAGIC_BYTES, at, end)) >= 0:
        try:
            _, version, header, size = _CONTAINER.unpack_from(data, at)
            stop = at + header + size
            if version != 1 or header != _CONTAINER.size or stop > end:
                raise BrokenFatbin
            entries = list(_entries(data, at + header, stop))
        except (BrokenFatbin, struct.error):
            at += 4
            continue
        yield from _loose(data, after, at)
        yield entries
        at = after = stop
    yield from _loose(data, after, end)


def _loose(data: bytes, at: int, end: int) -> Iterator[list[GpuCode]]:
    """Yield machine code for a GPU that is in no fat binary and has kernels.

    CUPTI carries pieces without kernels for each GPU; they say nothing about the file's own code.
    """
    at = max(at, 1)  # the file itself is an ELF file
    while (at := find(data, MAGIC, at, end)) >= 0:
        if _is_cubin(data[at : at + 64]):
            code = data[at : min(end, at + _LARGEST)]
            if kernels_of(code):
                yield [GpuCode(sm=str(sm_of(code)), ptx=False, code=code)]
        at += 4


def _section(data: bytes, at: int, end: int) -> Iterator[list[GpuCode]]:
    while at + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack_from(data, at)
        if magic == 0:  # padding: containers start at multiples of eight
            at += 8
            continue
        stop = at + header + size
        if magic != _MAGIC or header < _CONTAINER.size or stop > end:
            raise BrokenFatbin(f"no fat binary at offset {at:#x}")
        yield list(_entries(data, at + header, stop))
        at += (header + size + 7) // 8 * 8


def _entries(data: bytes, at: int, end: int) -> Iterator[GpuCode]:
    while at + _ENTRY_MIN <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, at)
        if header < _ENTRY_MIN or at + header + size > end:
            raise BrokenFatbin(f"an entry at offset {at:#x} reaches beyond its container")
        if kind in (_PTX, _SASS):
            yield _entry(data, at, header, size, ptx=kind == _PTX)
        at += header + size


def _entry(data: bytes, at: int, header: int, size: int, *, ptx: bool) -> GpuCode:
    (arch,) = struct.unpack_from("<I", data, at + _ARCH_AT)
    (flags,) = struct.unpack_from("<Q", data, at + _FLAGS_AT)
    suffix = "".join(letter for bit, letter in _SUFFIXES.items() if flags & bit)
    unpacked = 0
    if flags & (_LZ4 | _ZSTD) and header >= _UNPACKED_AT + 8:
        (unpacked,) = struct.unpack_from("<Q", data, at + _UNPACKED_AT)
        size = min(size, struct.unpack_from("<I", data, at + _PACKED_AT)[0])
    code = data[at + header : at + header + size]
    return GpuCode(f"{arch // 10}.{arch % 10}{suffix}", ptx, code, flags, unpacked)


def _grouped(codes: dict[str, set[str]]) -> tuple[Kernels, ...]:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, spelled in codes.items():
        groups[tuple(sorted(spelled))].append(name)
    return tuple(
        Kernels(codes=spelled, names=tuple(sorted(names)))
        for spelled, names in sorted(groups.items())
    )
