"""Which functions run only after a check of the CPU.

In: the functions of a file, and the functions that a name or a resolver ties to a level. Out: the
guarded functions. A name alone is a claim. It holds if guarded code and functions that check the
CPU alone reach the function; a function without a name is guarded if guarded code alone reaches it.
Calls, jumps, taken addresses and tables of pointers reach a function. Code that cannot be followed
counts as unguarded, so that the verdict is "not decided" and never "runs".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Set
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetbuild.audit.functions import Functions

_BLOCK = 8  # bytes of a variable in which a file keeps what it learnt of the CPU
_STEPS = 2  # more lead to what all functions share, such as the allocator
ASKS = -1  # stands for functions and variables of other files that tell the CPU's features
_UNKNOWN = 0  # a table, or code outside of every known function, reaches it


class Guards:
    """The guarded functions of a file, found once."""

    def __init__(self, functions: Functions, claimed: Set[int], trusted: Set[int]) -> None:
        self._functions = functions
        self._trusted = frozenset(trusted)
        self._claimed = frozenset(claimed) - trusted
        self._checks: dict[int, bool] = {}

    @cached_property
    def guarded(self) -> frozenset[int]:
        """Return the functions that only guarded code and checks of the CPU reach."""
        if not self._claimed and not self._trusted:
            return frozenset()
        functions = self._functions
        guarded = self._claimed | self._trusted | self._helpers
        guarded -= functions.entries
        suspects = list(guarded - self._trusted)
        while suspects:
            function = suspects.pop()
            if function in guarded and not self._is_guarded(function, guarded):
                guarded -= {function}
                suspects += self._reached_from.get(function, set()) - self._trusted
        return frozenset(guarded)

    def _is_guarded(self, function: int, guarded: Container[int]) -> bool:
        claimed = function in self._claimed
        return all(
            source in guarded or (claimed and source != _UNKNOWN and self._is_check(source))
            for source in self._sources.get(function, ())
        )

    @cached_property
    def _helpers(self) -> frozenset[int]:
        """Return the local functions without a level that claimed ones reach in few steps."""
        functions = self._functions
        own = self._claimed | self._trusted
        found: set[int] = set()
        step = set(own)
        for _ in range(_STEPS):
            reached = {target for start in step for target in functions.reached_by(start)}
            step = {start for start in reached - own - found if functions.is_local(start)}
            found |= step
        return frozenset(found)

    # Who reaches a function

    @cached_property
    def _sources(self) -> dict[int, set[int]]:
        """Return for each claimed function, helper and question the functions that reach it."""
        wanted = self._claimed | self._helpers
        found: dict[int, set[int]] = defaultdict(set)
        if wanted:
            asking = self._functions.questions | self._functions.asking | {ASKS}
            for source, target in self._functions.references_to(wanted | asking):
                if source != target:
                    found[target].add(source)
        return found

    @cached_property
    def _reached_from(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for target, sources in self._sources.items():
            for source in sources:
                found[source].add(target)
        return found

    # Who checks the CPU

    def _is_check(self, start: int) -> bool:
        """Return whether a function asks the CPU, or reads what another one has found out."""
        if start not in self._checks:
            self._checks[start] = (
                start in self._asking
                or self._reads_answer(start)
                or any(
                    callee in self._asking or self._reads_answer(callee)
                    for callee in self._functions.tested_by(start)
                )
            )
        return self._checks[start]

    @cached_property
    def _asking(self) -> frozenset[int]:
        functions = self._functions
        return frozenset(functions.questions | functions.asking | self._sources[ASKS]) - {_UNKNOWN}

    @cached_property
    def _answers(self) -> frozenset[int]:
        """Return where functions that ask the CPU, and who calls them, keep the answer."""
        callers = {source for start in self._asking for source in self._sources.get(start, ())}
        return frozenset(
            address // _BLOCK
            for start in (self._asking | callers) - {_UNKNOWN}
            for address in self._functions.touched_by(start)
        )

    def _reads_answer(self, start: int) -> bool:
        return any(
            address // _BLOCK in self._answers for address in self._functions.touched_by(start)
        )
