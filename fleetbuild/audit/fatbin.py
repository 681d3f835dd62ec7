"""Find the SMs that a CUDA fat binary has code for. The format was found by experiments."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, size of the entries
_MAGIC = 0xBA55ED50
_ENTRY = struct.Struct("<HHIQ")  # kind, -, header size, size of the code
_ARCH_AT = 28
_FLAGS_AT = 40
_ENTRY_MIN = _FLAGS_AT + 8
_PTX, _SASS = 1, 2
_SUFFIXES = {0x100000: "a", 0x200000: "f"}  # one SM only; one family of SMs


class BrokenFatbin(ValueError):
    """The section does not match its headers."""


@dataclass(frozen=True)
class GpuCode:
    """One entry of GPU code: its SM and kind."""

    sm: str  # "8.6", "9.0a"
    ptx: bool


def gpu_code(section: bytes) -> Iterator[GpuCode]:
    """Yield the GPU code entries in a .nv_fatbin section."""
    at = 0
    while at + _CONTAINER.size <= len(section):
        magic, _, header, size = _CONTAINER.unpack_from(section, at)
        if magic == 0:  # padding: containers start at multiples of eight
            at += 8
            continue
        end = at + header + size
        if magic != _MAGIC or header < _CONTAINER.size or end > len(section):
            raise BrokenFatbin(f"no fat binary at offset {at:#x}")
        yield from _entries(section, at + header, end)
        at = (end + 7) // 8 * 8


def _entries(section: bytes, at: int, end: int) -> Iterator[GpuCode]:
    while at + _ENTRY_MIN <= end:
        kind, _, header, size = _ENTRY.unpack_from(section, at)
        if header < _ENTRY_MIN or at + header + size > end:
            raise BrokenFatbin(f"an entry at offset {at:#x} reaches beyond its container")
        if kind in (_PTX, _SASS):
            yield GpuCode(sm=_sm(section, at), ptx=kind == _PTX)
        at += header + size


def _sm(section: bytes, at: int) -> str:
    (arch,) = struct.unpack_from("<I", section, at + _ARCH_AT)
    (flags,) = struct.unpack_from("<Q", section, at + _FLAGS_AT)
    suffix = "".join(letter for bit, letter in _SUFFIXES.items() if flags & bit)
    return f"{arch // 10}.{arch % 10}{suffix}"
