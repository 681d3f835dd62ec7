"""Which functions run only after a check of the CPU.

In: the functions of a file, and the functions that a name or a resolver ties to a level. Out: the
guarded functions. A name alone is a claim. It holds if guarded code, functions that check the CPU,
and functions that can do without it alone reach the function. A function without a name is guarded
if guarded code alone reaches it, and functions of which each path to it leads over a check.
Calls, jumps, taken addresses and tables of pointers reach a function. Code that cannot be followed
counts as unguarded, so that the verdict is "not decided" and never "runs".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Set
from functools import cached_property
from typing import TYPE_CHECKING

from fleetbuild.audit.paths import Paths

if TYPE_CHECKING:
    from fleetbuild.audit.functions import Functions

_BLOCK = 8  # bytes of a variable in which a file keeps what it learnt of the CPU
_STEPS = 4  # more lead to what all functions share, such as the allocator
_SHORT = 192  # bytes of a function that does nothing but tell
_SMALL = 1024  # bytes of a function that does little but ask
_FEW = 200  # callers of functions that ask, of which each is followed
_FOLLOWED = 4000  # functions that ask; polars has 17,600, and following them takes two minutes
ASKS = -1  # stands for functions and variables of other files that tell the CPU's features
_UNKNOWN = 0  # a table, or code outside of every known function, reaches it


class Guards:
    """The guarded functions of a file, found once."""

    def __init__(self, functions: Functions, claimed: Set[int], trusted: Set[int]) -> None:
        self._functions = functions
        self._trusted = frozenset(trusted)
        self._claimed = frozenset(claimed) - trusted
        self._followed: dict[int, Paths] = {}

    @cached_property
    def guarded(self) -> frozenset[int]:
        """Return the functions that only guarded code and checks of the CPU reach."""
        functions = self._functions
        guarded = set(self._claimed | self._trusted | self._helpers | self._chosen | self._unused)
        guarded -= functions.entries
        suspects = list(guarded - self._trusted)
        while suspects:
            function = suspects.pop()
            if function in guarded and not self._is_guarded(function, guarded):
                guarded.remove(function)
                suspects += self._reached_from.get(function, set()) - self._trusted
        return frozenset(guarded)

    def _is_guarded(self, function: int, guarded: Container[int]) -> bool:
        return all(
            source in guarded or (source != _UNKNOWN and self._chooses(source, function))
            for source in self._sources.get(function, ())
        )

    def _chooses(self, source: int, function: int) -> bool:
        """Return whether a function reaches this one only on a CPU that has its features."""
        if function in self._claimed:
            paths = self._paths(source)
            return (
                source in self._telling | self._readers
                or paths.decides
                or not self._telling.isdisjoint(self._functions.tested_by(source))
                or (paths.offers and source not in self._functions.entries)
            )
        if function in self._pointers:
            return function in self._paths(source).chosen - self._functions.called_by(source)
        return function in self._chosen and source in self.checks_first

    @cached_property
    def checks_first(self) -> frozenset[int]:
        """Return the functions with code for a level on some paths, which lead over a check."""
        paths = self._checking.items()
        return frozenset(start for start, path in paths if path.avoids and path.checked)

    @cached_property
    def _checking(self) -> dict[int, Paths]:
        checks = self._sure_checks if len(self._sure_checks) <= _FOLLOWED else ()
        mentions = self._functions.mentions_level
        return {start: self._paths(start) for start in filter(mentions, checks)}

    @cached_property
    def _pointers(self) -> frozenset[int]:
        """Return the functions whose address is taken on one side of a check alone."""
        return frozenset[int]().union(*(path.chosen for path in self._checking.values()))

    @cached_property
    def _chosen(self) -> frozenset[int]:
        """Return the local functions for a level, without its name, that are behind a check."""
        functions, own = self._functions, self._claimed | self._trusted
        reached = (target for start in self.checks_first for target in functions.reached_by(start))
        chosen = self._pointers.union(filter(functions.needs_level, reached)) - own
        return frozenset(filter(functions.is_local, chosen))

    @cached_property
    def _unused(self) -> frozenset[int]:
        """Return the exported functions of a module of Python that nothing in it refers to."""
        exported = self._functions.exported_by_module
        return exported - self._reaching(exported).keys()

    @cached_property
    def _sure_checks(self) -> frozenset[int]:
        """Return the functions that ask the CPU, call one that tells, or read an answer."""
        return (self._telling | self._all_reaching(self._telling) | self._readers) - {_UNKNOWN}

    @cached_property
    def _telling(self) -> frozenset[int]:
        """Return the functions that ask the CPU, and short ones that tell what these found."""
        return self._first_telling | self._short(self._readers)

    @cached_property
    def _first_telling(self) -> frozenset[int]:
        short = self._short(self._callers | self._first_readers)
        return self._asking.union(short) - {_UNKNOWN}

    def _short(self, functions: Iterable[int]) -> frozenset[int]:
        size_of = self._functions.size_of
        return frozenset(start for start in functions if start and size_of(start) <= _SHORT)

    @cached_property
    def _readers(self) -> frozenset[int]:
        more = self._sure_answers - self._first_answers
        return self._first_readers | self._functions.touching(more)

    @cached_property
    def _first_readers(self) -> frozenset[int]:
        return self._functions.touching(self._first_answers)

    @cached_property
    def _sure_answers(self) -> frozenset[int]:
        """Return where functions keep what they learn of the CPU."""
        functions, answers = self._functions, self._first_answers
        callers = self._callers if len(self._callers) <= _FEW else ()
        kept = (functions.paths(start, answers, self._first_telling).kept for start in callers)
        return answers | {address // _BLOCK for addresses in kept for address in addresses}

    @cached_property
    def _first_answers(self) -> frozenset[int]:
        """Return where functions that ask, and small ones that call these, keep the answer."""
        functions = self._functions
        small = {start for start in self._callers if functions.size_of(start) <= _SMALL}
        return frozenset(
            address // _BLOCK
            for start in (self._asking | small) - {_UNKNOWN}
            for address in functions.touched_by(start)
        )

    def _paths(self, start: int) -> Paths:
        if start not in self._followed:
            self._followed[start] = self._functions.paths(start, self._sure_answers, self._telling)
        return self._followed[start]

    @cached_property
    def _helpers(self) -> frozenset[int]:
        """Return the local functions without a level that claimed ones reach in few steps."""
        functions = self._functions
        own = self._claimed | self._trusted | self._chosen
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
        """Return for each function that may be guarded the functions that reach it."""
        return self._reaching(self._claimed | self._helpers | self._chosen)

    @cached_property
    def _asking(self) -> frozenset[int]:
        return frozenset(self._functions.questions | self._functions.asking)

    @cached_property
    def _callers(self) -> frozenset[int]:
        """Return the functions that reach one which asks the CPU."""
        return self._all_reaching(self._asking | {ASKS}) - {_UNKNOWN}

    def _all_reaching(self, wanted: frozenset[int]) -> frozenset[int]:
        return frozenset[int]().union(*self._reaching(wanted).values())

    def _reaching(self, wanted: frozenset[int]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for source, target in self._functions.references_to(wanted) if wanted else ():
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
