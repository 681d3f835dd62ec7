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
    OpKind,
    Register,
    RegisterExt,
)

_LARGEST = 2**18  # bytes of a function that is followed
_JUMPS = (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH)
_ENDS = (FlowControl.RETURN, FlowControl.INDIRECT_BRANCH)
_CALLS = (FlowControl.CALL, FlowControl.INDIRECT_CALL)
_WRITES = (OpAccess.WRITE, OpAccess.COND_WRITE, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE)
_READS = (OpAccess.READ, OpAccess.COND_READ, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE)
# What a place holds; on several ways, either of them.
_CONSTANT, _ANSWER, _UNKNOWN = 0, 1, -1

# A register and 0; of a place on the stack, a register and the distance from it, plus 1.
_Place = tuple[int, int]
_State = dict[_Place, int]
_STACK = (Register.RSP, Register.RBP)
_STACK_POINTER = Register.RSP, 0
_FLAGS = Register.NONE, 0
_LOST_BY_CALLS = frozenset(
    {
        (register, 0)
        for register in (
            Register.NONE, Register.RAX, Register.RCX, Register.RDX, Register.RSI, Register.RDI,
            Register.R8, Register.R9, Register.R10, Register.R11,
        )
    }
)  # fmt: skip


class Meaning(Enum):
    """What an instruction does, as far as it matters here."""

    NOTHING = 0
    LEVEL = 1  # it needs a feature, or refers to a function that does
    CHECK = 2  # it reads an answer about the CPU
    OTHER = 3  # it refers to a function that needs no feature
    POINTER = 4  # it takes the address of such a function
    LEADING = 5  # it takes the address of one that calls a function which needs a feature


_OFFERS = (Meaning.OTHER, Meaning.POINTER, Meaning.LEADING)


class Paths(NamedTuple):
    """What the paths through a function have in common."""

    avoids: bool = False  # one of them ends without any code for a level
    offers: bool = False  # and refers to another function
    checked: bool = False  # those to code for a level lead over a branch that the CPU decides
    decides: bool = False  # some of them part at a branch that the CPU decides
    chosen: frozenset[int] = frozenset()  # functions whose address they take, or another's, by that
    needs: bool = False  # each of them has code for a level
    kept: frozenset[int] = frozenset()  # the variables that get an answer about the CPU


class _Effect(NamedTuple):
    read: set[_Place]
    written: set[_Place]
    loads: bool  # from memory that is not a known place on the stack
    stores: bool  # to such memory


class _Step(NamedTuple):
    meaning: Meaning
    following: tuple[int, ...]
    ends: bool
    decides: bool  # it is a branch that depends on an answer about the CPU
    target: int  # where it leads, or the address that it takes


_Steps = dict[int, _Step]


def follow(
    data: bytes, start: int, end: int, shift: int, meaning: Callable[[Instruction], Meaning]
) -> Paths:
    """Return the paths through the function at a place of a file, if it has code for a level."""
    if end - start > _LARGEST:
        return Paths()
    first, last = start + shift, end + shift
    code = [(each, meaning(each)) for each in Decoder(64, data[start:end], ip=first)]
    meanings = {means for _, means in code}
    keeps = Meaning.CHECK in meanings and any(map(_stores, (each for each, _ in code)))
    if meanings.isdisjoint((Meaning.LEVEL, Meaning.LEADING)) and not keeps:
        return Paths()
    ways = {each.ip: _following(each, first, last) for each, _ in code}
    answers = _Answers(code, {at: way[0] for at, way in ways.items()})
    steps = {
        each.ip: _Step(means, *ways[each.ip], answers.decide(each), _target(each))
        for each, means in code
    }
    # A conditional jump to a function for a level has another way, too.
    clean = _reached(
        steps,
        [first],
        lambda at: steps[at].meaning is not Meaning.LEVEL or len(steps[at].following) > 1,
    )
    avoids = any(steps[at].ends for at in clean)
    chosen = _decided(steps, first, Meaning.LEADING, Meaning.POINTER) if avoids else set()
    if Meaning.LEVEL not in meanings and not keeps:
        return Paths(chosen=frozenset(chosen))
    levels = {s.target for s in steps.values() if s.meaning is Meaning.LEVEL and not s.decides}
    return Paths(
        avoids=avoids,
        offers=any(steps[at].meaning in _OFFERS for at in clean),
        checked=Meaning.LEVEL in meanings and levels <= _decided(steps, first, Meaning.LEVEL, None),
        decides=any(step.decides for step in steps.values()),
        chosen=frozenset(chosen),
        needs=Meaning.LEVEL in meanings and not avoids,
        kept=answers.kept(),
    )


def _decided(steps: _Steps, first: int, wanted: Meaning, instead: Meaning | None) -> set[int]:
    """Return the targets with a meaning to which deciding branches lead by one side alone.

    A branch that only counts how often the CPU was asked reaches what follows by both sides. With
    `instead`, the other side has a target with that meaning, which this side lacks.
    """

    def until_decided(start: int, meaning: Meaning | None) -> set[int]:
        passed = _reached(steps, [start], lambda at: not steps[at].decides)
        return {steps[at].target for at in passed if steps[at].meaning is meaning}

    found, either = set[int](), until_decided(first, wanted)
    for step in steps.values():
        if step.decides and len(step.following) == 2:
            one, other = (until_decided(side, wanted) for side in step.following)
            for_one, for_other = (until_decided(side, instead) for side in step.following)
            found |= one if not instead or for_other - for_one else set()
            found |= other if not instead or for_one - for_other else set()
            either |= one & other
    return found - either


class _Answers:
    """Where answers about the CPU are: in registers, in flags and on the stack.

    A place holds an answer if it gets one, or a constant, on each path that leads here.
    """

    def __init__(
        self, code: list[tuple[Instruction, Meaning]], following: dict[int, tuple[int, ...]]
    ) -> None:
        self._code = {each.ip: (each, means) for each, means in code}
        self._information = InstructionInfoFactory()
        self._effects: dict[int, _Effect] = {}
        self._deciding: dict[int, bool] = {}  # branches
        self._keeping: dict[int, bool] = {}  # where a variable is written
        if any(means is Meaning.CHECK for _, means in code):
            self._follow(following)

    def _follow(self, following: dict[int, tuple[int, ...]]) -> None:
        next_of = {each.ip: each.next_ip for each, _ in self._code.values()}
        jumped = {to for at, ways in following.items() for to in ways if to != next_of[at]}
        targets = {to for ways in following.values() for to in ways}
        # Tables of jumps and exceptions lead to code that nothing else leads to.
        waiting = [(at, _State()) for at in self._code if at not in targets]
        waiting.append((next(iter(self._code)), {}))
        heads: dict[int, _State] = {}
        while waiting:
            at, state = waiting.pop()
            known = heads.get(at)
            if known is not None:
                state = {place: known[place] | state.get(place, _UNKNOWN) for place in known}
                if state == known:
                    continue
            heads[at] = state
            state = dict(state)
            while True:
                self._pass(at, state)
                ways = [to for to in following[at] if to in self._code]
                if ways != [next_of[at]] or ways[0] in jumped:
                    waiting += [(to, dict(state)) for to in ways]
                    break
                at = ways[0]

    def decide(self, instruction: Instruction) -> bool:
        """Return whether this is a branch that depends on an answer about the CPU."""
        return self._deciding.get(instruction.ip, False)

    def _pass(self, at: int, state: _State) -> None:
        """Change the state as an instruction does. The last time, the least is known."""
        instruction, means = self._code[at]
        flow = instruction.flow_control
        if flow == FlowControl.CONDITIONAL_BRANCH:
            self._deciding[at] = state.get(_FLAGS) == _ANSWER
        elif flow in _CALLS:
            for place in _LOST_BY_CALLS:
                state.pop(place, None)
            if means is Meaning.CHECK:
                state[Register.RAX, 0] = _ANSWER
        elif flow == FlowControl.NEXT:
            effect = self._effect(at)
            value = self._value(at, state)
            if effect.stores:
                self._keeping[at] = value == _ANSWER
            if _STACK_POINTER in effect.written:
                for slot in [place for place in state if place[0] == Register.RSP]:
                    del state[slot]
            state |= dict.fromkeys(effect.written, value)

    def _value(self, at: int, state: _State) -> int:
        """Return what an instruction writes: an answer, a constant, or something else."""
        effect = self._effect(at)
        values = {state.get(place, _UNKNOWN) for place in effect.read}
        if self._code[at][1] is Meaning.CHECK or _ANSWER in values:
            return _ANSWER
        return _UNKNOWN if effect.loads or _UNKNOWN in values else _CONSTANT

    def _effect(self, at: int) -> _Effect:
        if at not in self._effects:
            instruction = self._code[at][0]
            used = self._information.info(instruction)
            uses = [
                ((RegisterExt.full_register(each.register), 0), each.access)
                for each in used.used_registers()
            ]
            loads = stores = False
            for each in used.used_memory():
                if each.base in _STACK and each.index == Register.NONE:
                    uses = [use for use in uses if use[0] != (each.base, 0)]
                    uses.append(((each.base, each.displacement + 1), each.access))
                else:
                    loads |= each.access in _READS
                    stores |= each.access in _WRITES
            flags = {_FLAGS}
            self._effects[at] = _Effect(
                {place for place, access in uses if access in (*_READS, OpAccess.COND_WRITE)}
                | (flags if instruction.rflags_read else set()),
                {place for place, access in uses if access in _WRITES}
                | (flags if instruction.rflags_modified else set()),
                loads=loads,
                stores=stores,
            )
        return self._effects[at]

    def kept(self) -> frozenset[int]:
        """Return the variables that an answer is written to."""
        return frozenset(
            self._code[at][0].ip_rel_memory_address
            for at, keeps in self._keeping.items()
            if keeps and self._code[at][0].is_ip_rel_memory_operand
        )


def _target(instruction: Instruction) -> int:
    """Return what tells uses of levels apart: compilers write the same one to several places."""
    if instruction.is_ip_rel_memory_operand:
        return instruction.ip_rel_memory_address
    return instruction.near_branch_target or instruction.ip


def _stores(instruction: Instruction) -> bool:
    """Return whether an instruction may write to a variable of the file."""
    return instruction.is_ip_rel_memory_operand and instruction.op0_kind == OpKind.MEMORY


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


def _reached(steps: _Steps, starts: Iterable[int], passes: Callable[[int], bool]) -> set[int]:
    """Return the places that a path leads to of which all places pass."""
    found = {start for start in starts if start in steps and passes(start)}
    open_ends = list(found)
    while open_ends:
        at = open_ends.pop()
        new = {place for place in steps[at].following if place in steps and passes(place)} - found
        found |= new
        open_ends += new
    return found
