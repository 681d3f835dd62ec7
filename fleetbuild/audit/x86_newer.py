"""x86-64 instructions that are newer than the disassembler: APX, AVX10.2, and the newest of AMX.

In: bytes that iced-x86 calls invalid. Out: how long the instruction is and what it needs, or
nothing. Forms with a prefix of APX are written as the older form that they extend, and iced names
that one. The others are rows of data/x86_64.yml: map, prefix, W and opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from iced_x86 import Code, Decoder, Instruction

from fleetbuild.hardware.data import load

APX = "apx"
_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3})
_NOT_OPCODES = _PREFIXES | {0x0F, 0x62, 0xC4, 0xC5, 0xD5}
_NOT_EXTENDED = ({0x4, 0x7, 0xA, 0xE}, {0x3, 0x8})  # rows of opcodes that REX2 does not extend
_JUMP = b"\xd5\x00\xa1"  # jmpabs, and 8 bytes of address
# Opcodes of EVEX map 4, and the bytes of a constant behind them; -1: four, or two with prefix 66.
_SIZES = {0x24: 1, 0x2C: 1, 0x69: -1, 0x6B: 1, 0x80: 1, 0x81: -1, 0x83: 1, 0xC0: 1, 0xC1: 1}
_MAP_4 = frozenset(
    [*(row + low for row in range(0, 0x40, 8) for low in range(4)), 0x24, 0x2C, *range(0x40, 0x50),
     0x60, 0x61, 0x65, 0x66, 0x69, 0x6B, 0x80, 0x81, 0x83, 0x84, 0x85, 0x88, 0x8F, 0xA5, 0xAD, 0xAF,
     0xC0, 0xC1, *range(0xD0, 0xD4), 0xF0, 0xF1, 0xF2, *range(0xF4, 0xFA), 0xFC, 0xFE, 0xFF]
)  # fmt: skip
_EXTENDED_VEX = frozenset(
    {"bmi1", "bmi2", "amx_tile", "cmpccxadd", "avx512f", "avx512bw", "avx512dq"}
)

Needs = Callable[[Instruction], tuple[str, ...]]


class Newer(NamedTuple):
    """A newer instruction: its length, the features that it needs, and words that show it."""

    size: int
    features: tuple[str, ...]
    text: str


def read_newer(code: bytes, needs: Needs) -> Newer | None:
    """Return the instruction that these bytes begin with; None if it is not known here."""
    start = 0
    while start < 4 and code[start : start + 1] and code[start] in _PREFIXES:
        start += 1
    prefixes, code = code[:start], code[start : start + 15]
    if len(code) < 6:
        code += bytes(6 - len(code))
    if code[0] == 0xD5:
        found = _rex2(prefixes, code, needs)
    elif code[0] == 0x62:
        found = _evex(code, needs)
    elif code[0] == 0xC4:
        found = _row("vex", code[1] & 31, code[2], code[3])
        found = found and _sized(found, 4 + _operand_size(code, 4) + 4 * (code[1] & 31 == 7))
    else:
        found = _legacy(prefixes, code)
    if found is None:
        return None
    return found._replace(size=found.size + start)


def _rex2(prefixes: bytes, code: bytes, needs: Needs) -> Newer | None:
    payload, opcode = code[1], code[2]
    second = payload >> 7
    if code[:3] == _JUMP:
        return Newer(11, (APX,), "jmpabs")
    if opcode >> 4 in _NOT_EXTENDED[second] or (not second and opcode in _NOT_OPCODES):
        return None
    older = prefixes + bytes([0x40 | payload & 15]) + b"\x0f" * second + code[2:]
    instruction = Decoder(64, older).decode()
    if instruction.code == Code.INVALID:
        return None
    size = instruction.len - len(prefixes) + 1 - second
    return Newer(size, (APX, *needs(instruction)), f"{_word(instruction)} (REX2)")


def _evex(code: bytes, needs: Needs) -> Newer | None:
    table, opcode = code[1] & 7, code[4]
    extended = bool(code[1] & 8) or not code[2] & 4
    if table == 4:
        return _map_4(code)
    size = 5 + _operand_size(code, 5) + (table == 3)
    if found := _row("evex", table, code[2], opcode):
        return _sized(found, size, *[APX] * extended)
    plain = bytes([0x62, code[1] & ~8, code[2] | 4, *code[3:]])
    if extended and (instruction := Decoder(64, plain).decode()).code != Code.INVALID:
        return Newer(instruction.len, (APX, *needs(instruction)), f"{_word(instruction)} (APX)")
    # Once VEX alone: the fields are the same ones, in one byte less.
    older = bytes([0xC4, code[1] & 0xE0 | table, code[2] & ~4 | code[3] >> 3 & 4, *code[4:]])
    instruction = Decoder(64, older).decode()
    needed = () if instruction.code == Code.INVALID else needs(instruction)
    if not needed or not _EXTENDED_VEX.issuperset(needed):
        return None
    return Newer(instruction.len + 1, (APX, *needed), f"{_word(instruction)} (APX)")


def _map_4(code: bytes) -> Newer | None:
    opcode, prefix, extension = code[4], code[2] & 3, code[5] >> 3 & 7
    if opcode not in _MAP_4:
        return None
    constant = _SIZES.get(opcode, 0)
    if opcode in (0xF6, 0xF7) and extension < 2 and prefix < 2:  # test
        constant = 1 if opcode == 0xF6 else -1
    if constant < 0:
        constant = 2 if prefix == 1 else 4
    more = {0x60: ("movbe",), 0x61: ("movbe",), 0x88: ("popcnt",), 0xF5: ("abm",)}.get(opcode, ())
    if opcode == 0x66 and prefix:
        more = ("adx",)
    if opcode == 0xF9:
        more = ("movdiri",)
    return Newer(5 + _operand_size(code, 5) + constant, (APX, *more), f"EVEX map 4, {opcode:#04x}")


def _legacy(prefixes: bytes, code: bytes) -> Newer | None:
    first = code[0] & 0xF0 == 0x40  # REX
    if code[first : first + 2] != b"\x0f\x38":
        return None
    opcode, modrm = code[first + 2], code[first + 3]
    size = first + 3 + _operand_size(code, first + 3)
    if opcode in (0x8A, 0x8B) and modrm < 0xC0:
        return Newer(size, ("movrs",), "movrs")
    if opcode == 0xF8 and modrm >= 0xC0 and prefixes[-1:] in (b"\xf2", b"\xf3"):
        return Newer(size, ("user_msr",), "urdmsr" if prefixes[-1] == 0xF2 else "uwrmsr")
    return None


def _row(kind: str, table: int, prefix: int, opcode: int) -> Newer | None:
    return _rows().get((kind, table, prefix & 3, prefix >> 7, opcode))


def _sized(found: Newer, size: int, *more: str) -> Newer:
    return found._replace(size=size, features=(*more, *found.features))


def _operand_size(code: bytes, at: int) -> int:
    """Return the bytes of ModRM, SIB and displacement."""
    mode, low = code[at] >> 6, code[at] & 7
    if mode == 3:
        return 1
    base = code[at + 1] & 7 if low == 4 and at + 1 < len(code) else low
    distance = (4 if base == 5 else 0, 1, 4)[mode]
    return 1 + (low == 4) + distance


def _word(instruction: Instruction) -> str:
    return f"{instruction}".split()[0]


@cache
def _rows() -> dict[tuple[object, ...], Newer]:
    table = load("x86_64.yml", "fleetbuild.audit")["newer"]
    return {
        (kind, map_, prefix, wide, opcode): Newer(0, tuple(features.split()), name)
        for kind, map_, prefix, wide, features, names in table
        for opcode, name in names.items()
    }
