"""The paths through one function of x86-64 code: whether it can do without code for a level.

In: the bytes of a function, and what its instructions mean. Out: `Paths`. A function that chooses
by the CPU has a path that avoids all code for a level, and reaches such code only over a branch
that an answer about the CPU decides. Compiled for a level as a whole, it has no such path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from iced_x86 import (
    Decoder,
    FlowControl,
    Instruction,
    InstructionInfoFactory,
    OpAccess,
    Register,
    RegisterExt,
)

_LARGEST = 2**18  # bytes of a function that is followed
_JUMPS = (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH)
_ENDS = (FlowControl.RETURN, FlowControl.INDIRECT_BRANCH)
_CALLS = (FlowControl.CALL, FlowControl.INDIRECT_CALL)
_WRITES = (OpAccess.WRITE, OpAccess.COND_WRITE, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE)
_READS = (OpAccess.READ, OpAccess.COND_READ, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE)
_LOST_BY_CALLS = frozenset(
    {
        Register.RAX, Register.RCX, Register.RDX, Register.RSI, Register.RDI, Register.R8,
        Register.R9, Register.R10, Register.R11,
    }
)  # fmt: skip


class Meaning(Enum):
    """What an instruction does, as far as it matters here."""

    NOTHING = 0
    LEVEL = 1  # it needs a feature, or refers to a function that does
    CHECK = 2  # it reads an answer about the CPU
    OTHER = 3  # it refers to a function that needs no feature


class Paths(NamedTuple):
    """What the paths through a function have in common."""

    avoids: bool = False  # one of them ends without any code for a level
    offers: bool = False  # and refers to another function
    checked: bool = False  # those to code for a level lead over a branch that the CPU decides


class _Step(NamedTuple):
    meaning: Meaning
    following: tuple[int, ...]
    ends: bool
    decides: bool  # it is a branch that depends on an answer about the CPU


def follow(
    data: bytes, start: int, end: int, shift: int, meaning: Callable[[Instruction], Meaning]
) -> Paths:
    """Return the paths through the function at a place of a file, if it has code for a level."""
    if end - start > _LARGEST:
        return Paths()
    first, last = start + shift, end + shift
    code = [(each, meaning(each)) for each in Decoder(64, data[start:end], ip=first)]
    meanings = {means for _, means in code}
    if Meaning.LEVEL not in meanings:
        return Paths()
    answers = _Answers() if Meaning.CHECK in meanings else None
    steps: dict[int, _Step] = {}
    for instruction, means in code:
        decides = answers is not None and answers.decide(instruction, means)
        following, ends = _following(instruction, first, last)
        steps[instruction.ip] = _Step(means, following, ends, decides)
    clean = _reached(
        steps, [first], lambda at: steps[at].meaning is not Meaning.LEVEL or steps[at].decides
    )
    return Paths(
        avoids=any(steps[at].ends for at in clean),
        offers=any(steps[at].meaning is Meaning.OTHER for at in clean),
        checked=_is_checked(steps, first),
    )


def _is_checked(steps: dict[int, _Step], first: int) -> bool:
    """Return whether a deciding branch leads to each place with code for a level by one side only.

    A branch that only counts how often the CPU was asked reaches what follows by both sides.
    """
    marked = {at for at, step in steps.items() if step.meaning is Meaning.LEVEL}
    levels = {at for at in marked if not steps[at].decides}  # others jump to another function

    def until_decided(*starts: int) -> set[int]:
        return levels & _reached(steps, starts, lambda at: not steps[at].decides)

    found: set[int] = set()
    for step in steps.values():
        if step.decides and len(step.following) == 2:
            one, other = map(until_decided, step.following)
            found |= one ^ other
    return bool(marked) and levels <= found and not until_decided(first)


class _Answers:
    """The registers that hold an answer about the CPU, in the order of the code."""

    def __init__(self) -> None:
        self._registers: set[int] = set()
        self._flags = False
        self._information = InstructionInfoFactory()

    def decide(self, instruction: Instruction, means: Meaning) -> bool:
        """Take the next instruction; return whether it is a branch that depends on an answer."""
        flow = instruction.flow_control
        if flow == FlowControl.CONDITIONAL_BRANCH:
            return self._flags
        if flow in _CALLS:
            self._registers -= _LOST_BY_CALLS
            self._flags = False
            if means is Meaning.CHECK:
                self._registers.add(Register.RAX)
            return False
        used = [
            (RegisterExt.full_register(use.register), use.access)
            for use in self._information.info(instruction).used_registers()
        ]
        known = means is Meaning.CHECK or any(
            access in _READS and register in self._registers for register, access in used
        )
        known = known or bool(self._flags and instruction.rflags_read)
        for register, access in used:
            if access in _WRITES:
                (self._registers.add if known else self._registers.discard)(register)
        if instruction.rflags_modified:
            self._flags = known
        return False


def _following(instruction: Instruction, first: int, last: int) -> tuple[tuple[int, ...], bool]:
    """Return where an instruction leads, and whether the function ends there.

    A conditional jump out of a function leads to its part for errors, and does not end it.
    """
    flow = instruction.flow_control
    jumps = (instruction.near_branch_target,) if flow in _JUMPS else ()
    inside = tuple(target for target in jumps if first <= target < last)
    if flow in _ENDS or flow in (FlowControl.EXCEPTION, FlowControl.INTERRUPT):
        return (), flow in _ENDS
    if flow == FlowControl.UNCONDITIONAL_BRANCH:
        return inside, not inside
    # A jump to another function stands for itself: its meaning describes that function.
    return (*(inside or jumps), instruction.next_ip), False


def _reached(
    steps: dict[int, _Step], starts: Iterable[int], passes: Callable[[int], bool]
) -> set[int]:
    """Return the places that a path leads to of which all places pass."""
    found = {start for start in starts if start in steps and passes(start)}
    open_ends = list(found)
    while open_ends:
        at = open_ends.pop()
        new = {place for place in steps[at].following if place in steps and passes(place)} - found
        found |= new
        open_ends += new
    return found
