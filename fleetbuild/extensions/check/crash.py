"""What a core file says about a crash: the instruction, its package, file and function.

In: a core of x86-64, as Linux writes it, or QEMU in its user mode. Out: a `Crash`. The core, and
the files that it names, may be anybody's, so the separate process reads them. Nothing is run.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from iced_x86 import Code, Decoder

from fleetbuild.audit import x86
from fleetbuild.audit.archive import mapped_here
from fleetbuild.audit.elf import DAMAGED, MAGIC, BrokenElf, Elf
from fleetbuild.audit.functions import Functions
from fleetbuild.audit.limited_process import SECONDS, read_apart, too_much
from fleetbuild.audit.x86_newer import read_newer
from fleetbuild.errors import ConfigError
from fleetbuild.extensions.check.environment import owner_here
from fleetbuild.models._base import Frozen

_PRSTATUS, _AUXV, _FILE = 1, 6, 0x46494C45  # kinds of notes
_STATUS = struct.Struct("<i108x27Q")  # signal, then registers
_RIP = 16
_PAIR = struct.Struct("<QQ")
_MAPPING = struct.Struct("<QQQ")  # start, end, pages before it in the file
_PROGRAM = struct.Struct("<IIQQQQQQ")
_LINK = struct.Struct("<QQQQ")  # where it was loaded, name, dynamic table, the next one
_PHDR, _PHDRS, _EXECFN = 3, 5, 31  # rows of the auxiliary vector
_TYPE, _EXECUTABLE, _CORE = 16, 2, 4  # where an ELF file says what it is: ET_EXEC, ET_CORE
_PT_DYNAMIC, _PT_NOTE, _PT_PHDR, _DT_DEBUG = 2, 4, 6, 21
_SHOWN = 8  # bytes of an unknown instruction
_MOST_FILES = 100_000
_LONGEST, _PAGE = 15, 4096
_FIX = "Name the core file of a crash; whole ones are written after: ulimit -c unlimited"


class Crash(Frozen):
    """Where a program was when a signal ended it."""

    signal: int = 0
    instruction: str | None = None  # None: neither the core nor the file has its bytes
    features: tuple[str, ...] = ()  # that the instruction needs, beyond the baseline
    package: str | None = None
    version: str | None = None
    file: str | None = None  # None: code that no file holds, such as of a JIT
    function: str | None = None
    problem: str | None = None  # why the file tells nothing


def read_crash(core: Path) -> Crash:
    """Return what a core file says about the crash that wrote it."""
    found = read_apart(crash_here, core, seconds=SECONDS)
    if found is None:
        raise ConfigError(f"{core} {too_much(SECONDS)}.", _FIX)
    return Crash.model_validate(found)


def crash_here(path: Path) -> Crash:
    """Read a core, and the file whose code ran, in this process, the separate one."""
    try:
        with mapped_here(path) as data:
            return _crash(path, data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", _FIX) from None
    except DAMAGED as error:
        raise ConfigError(f"{path} is a damaged core file: {error}.", _FIX) from None


def _crash(path: Path, data: bytes) -> Crash:
    core = Elf(data) if data[:4] == MAGIC else None
    if core is None or (core.readable and data[_TYPE] != _CORE):
        raise ConfigError(f"{path} is not a core file.", _FIX)
    if not core.readable or core.arch != "x86_64":
        raise ConfigError(
            f"{path} is of {core.arch}, and only cores of x86-64 are read.",
            "See which file is at fault with: gdb -c CORE -ex 'info sharedlibrary' -ex 'x/i $pc'",
        )
    notes: dict[int, bytes] = {}
    for kind, note in core.notes(_PT_NOTE):
        notes.setdefault(kind, note)  # the thread that got the signal is the first
    if _PRSTATUS not in notes:
        raise ConfigError(f"{path} has no registers of a crash.", _FIX)
    signal, *registers = _STATUS.unpack_from(notes[_PRSTATUS])
    place = registers[_RIP]
    images = _files(notes[_FILE]) if _FILE in notes else _linked(core, notes.get(_AUXV, b""))
    base, file = max(((base, file) for base, file in images if base <= place), default=(0, ""))
    crash, code = Crash(), _memory(core, place, _LONGEST)
    if file:
        crash, code = _in_file(core, Path(file), place, base)
    instruction, features = _instruction(code, place) if code else (None, ())
    return crash.model_copy(
        update={"signal": signal, "instruction": instruction, "features": features}
    )


def _in_file(core: Elf, path: Path, place: int, base: int) -> tuple[Crash, bytes]:
    """Return the crash with its place in a file, and the bytes of the instruction."""
    code, head = _memory(core, place, _LONGEST), _memory(core, base, _PAGE)
    package, version = owner_here(path) or (None, None)
    found = {"file": str(path), "package": package, "version": version}
    try:
        with mapped_here(path) as data:
            elf = Elf(data)
            address = place if data[_TYPE] == _EXECUTABLE else place - base
            offset = elf.offset_of(address)
            if elf.arch != core.arch or (head and head != data[:_PAGE].ljust(_PAGE, b"\0")):
                found["problem"] = "it was changed after the crash"
            elif offset is None:  # behind the last file
                return Crash(), code
            else:
                code = code or data[offset : offset + _LONGEST]
                found["function"] = Functions(elf).name_at(address)
    except OSError as error:
        found["problem"] = f"it cannot be read here: {error.strerror}"
    except DAMAGED as error:
        found["problem"] = f"it is damaged: {error}"
    return Crash.model_validate(found), code


def _instruction(code: bytes, address: int) -> tuple[str, tuple[str, ...]]:
    """Return the instruction that these bytes begin with, and the features that it needs."""
    instruction = Decoder(64, code, ip=address).decode()
    if instruction.code != Code.INVALID:
        return f"{instruction}", x86.features_of(instruction)
    newer = read_newer(code, x86.features_of)
    return (newer.text, newer.features) if newer else (code[:_SHOWN].hex(" "), (x86.UNKNOWN,))


def _memory(core: Elf, address: int, size: int) -> bytes:
    """Return bytes of the program's memory; fewer, or none, if the core does not have them."""
    offset = core.offset_of(address)
    return b"" if offset is None else core.data[offset : offset + size]


def _files(note: bytes) -> Iterator[tuple[int, str]]:
    """Yield where each file begins in memory, and its path, as the kernel noted them."""
    count, _ = _PAIR.unpack_from(note)
    if count > _MOST_FILES:
        raise BrokenElf("it names too many files")
    names = note[_PAIR.size + count * _MAPPING.size :].split(b"\0")
    for number, name in zip(range(count), names, strict=False):
        start, _, before = _MAPPING.unpack_from(note, _PAIR.size + number * _MAPPING.size)
        if before == 0:
            yield start, os.fsdecode(name)


def _linked(core: Elf, auxv: bytes) -> Iterator[tuple[int, str]]:
    """Yield the same by the loader's list in memory: QEMU's cores have no note of files."""
    known = dict(_PAIR.iter_unpack(auxv[: len(auxv) // _PAIR.size * _PAIR.size]))
    at, size = known.get(_PHDR, 0), known.get(_PHDRS, 0) * _PROGRAM.size
    program = {row[0]: row for row in core.rows_at(_PROGRAM, at, size)}
    if _PT_DYNAMIC not in program or _PT_PHDR not in program:
        return
    shift = at - program[_PT_PHDR][3]
    table = core.rows_at(_PAIR, shift + program[_PT_DYNAMIC][3], program[_PT_DYNAMIC][6])
    following = 0
    for tag, value in islice(table, _MOST_FILES):
        if tag == _DT_DEBUG:
            following = next((row[1] for row in core.rows_at(_PAIR, value, _PAIR.size)), 0)
    for _ in range(_MOST_FILES):
        rows = list(core.rows_at(_LINK, following, _LINK.size)) if following else []
        if not rows:
            return
        base, name, _, following = rows[0]
        text = _text(core, name) or _text(core, known.get(_EXECFN, 0))
        yield base, text


def _text(core: Elf, address: int) -> str:
    offset = core.offset_of(address)
    return "" if offset is None else core.string(offset)
