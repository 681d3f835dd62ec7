"""The functions of an ELF file, and when each of them runs.

In: an `Elf`. Out: its code as pieces, each a function that runs at load, by default, or behind a
check of the CPU. Functions are known by symbols, by the tables for unwinding, which stripped files
keep, and by calls. What runs at load is followed by direct calls from what the loader starts.
"""

from __future__ import annotations

import bisect
import re
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

from iced_x86 import FlowControl

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.elf import FUNCTIONS, LABELS, Code, Elf, Section, Symbol
from fleetbuild.audit.guards import ASKS, Guards
from fleetbuild.audit.level_names import (
    asking_names,
    is_for_level,
    is_of_library,
    libraries_by_text,
)
from fleetbuild.audit.models import When
from fleetbuild.audit.paths import Meaning, Paths
from fleetbuild.audit.pieces import Piece, find, forget

_RELA = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_SLOT = struct.Struct("<Q")
_FRAME_HEADER = struct.Struct("<BBBBiI")
_FRAME_ROW = struct.Struct("<ii")
_FRAME = struct.Struct("<IIiI")  # length, CIE, start, size
_USUAL_TABLE = (1, 0x1B, 0x03, 0x3B)  # version; offsets of 32 bits from here, and from the table

_DT_INIT, _DT_INIT_ARRAY, _DT_INIT_ARRAY_SIZE = 12, 25, 27
_DT_PREINIT_ARRAY, _DT_PREINIT_ARRAY_SIZE, _DT_RELR_SIZE, _DT_RELR = 32, 33, 35, 36
_DT_RELA, _DT_RELA_SIZE, _DT_JMPREL, _DT_PLT_SIZE, _DT_SYMTAB = 7, 8, 23, 2, 6
_NO_ENTRY = (0, 2**64 - 1)  # of .ctors and .init_array
_MOST_ROWS = 20_000_000
_MOST_ENTRIES = 1_000_000
_READ_AT_ONCE = 4 * 2**20
_TABLE = 2048  # bytes between the beginning of a table, which code knows, and a pointer in it
_GAP = 64  # bytes in a table between functions
_SHORT = 384  # bytes of a function that may do nothing but call another one
_PADDING = 64  # bytes between functions that are not worth a piece


_RELATIVE = {"x86_64": 8, "aarch64": 1027}
_IRELATIVE = {"x86_64": 37, "aarch64": 1032}
_STORES = {"x86_64": (1,), "aarch64": (257,)}  # a slot of a table with the address of a symbol
_LINKS = {"x86_64": (6, 7), "aarch64": (1025, 1026)}  # the same of the linker's own slots
_MACHINES: dict[str, Any] = {"x86_64": x86, "aarch64": aarch64}


# What the assembly of OpenSSL, BoringSSL, AWS-LC and ring contains; code for ADX; and sizes.
_CIPHERS = b", CRYPTOGAMS by <appro@openssl.org>"
_ADX = re.compile(rb"[\x66\xf3][\x48-\x4f]\x0f\x38\xf6", re.S)
_LARGEST_CIPHERS, _BESIDE = 2**21, 2**14

# Where the kernel tells the features of the CPU; libdeflate and others read it themselves.
_ASKED_FILES = (b"/proc/self/auxv\0", b"/proc/cpuinfo\0")


class Functions:
    """The functions of a file whose architecture is known."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._machine = _MACHINES[elf.arch]
        self._ends: dict[int, int] = {}
        self._names: dict[int, Symbol] = {}
        self._trusted: set[int] = set()  # of a library that is known to choose
        self._named: set[int] = set()  # for a level
        self._nameless: set[int] = set()  # with a name that is not for a level
        self._global: set[int] = set()
        self._resolvers: set[int] = set()
        self._modules: set[int] = set()
        self.asking: set[int] = set()  # by name
        self._checks_first: frozenset[int] = frozenset()
        self._needing: dict[int, bool] = {}
        self._ways: dict[tuple[int, int], bool] = {}  # that all need a level, by steps
        self._leading: dict[int, bool] = {}  # to a function that needs one
        self._tables: dict[int, bool] = {}  # whether they hold a function for a level
        self._read_symbols(self._elf.symbols(*FUNCTIONS))
        self._read_frames()
        self._starts = sorted(self._ends)
        self._read_symbols(self._labels())
        self._read_relocations()
        entries = {*self._init_entries, *self._resolvers, *self._modules}
        # What the loader or Python starts.
        self.entries = frozenset(start for start in entries if self._add(start))
        self._starts = sorted(self._ends)
        self._in_slots = {value for _, value in self._all_slots() if value in self._ends}
        for start in self.entries:
            if self._ends[start] == start:  # such as frame_dummy; assembly may follow it
                self._ends[start] = self._measured_end(start)

    # What there is

    @cached_property
    def asks_cpu(self) -> bool:
        """Return whether the file asks which features the CPU has."""
        data = self._elf.data
        return self._asks_itself or any(
            find(data, path, 0, len(data)) >= 0 for path in _ASKED_FILES
        )

    @cached_property
    def _asks_itself(self) -> bool:
        # Other programs read _ASKED_FILES to count CPUs: there, names of functions say nothing.
        return bool(self.asking or self._asking_slots or self.questions)

    @cached_property
    def questions(self) -> frozenset[int]:
        """Return the functions, or 0, that hold an instruction which tells the CPU's features."""
        data, machine = self._elf.data, self._machine
        found = set()
        for code in self._elf.code:
            shift = code.address - code.offset
            for place in machine.questions(data, code.offset, code.offset + code.size):
                start = self._function_at(place + shift)
                if start in found:
                    continue
                first = start or max(code.address, self._end_before(place + shift))
                end = self._end_of(start) if start else code.end
                piece = Piece(
                    first - shift,
                    end - shift,
                    shift,
                    "default",
                    known=bool(start or not self._ends),
                )
                if machine.is_question(data, piece, place):
                    found.add(start or 0)
        return frozenset(found)

    def _end_before(self, address: int) -> int:
        start = self._start_before(address)
        return 0 if start is None else self._end_of(start)

    def name_at(self, address: int) -> str | None:
        """Return the name of the function at an address."""
        start = self._start_before(address)
        if start is None or address >= max(self._ends[start], start + 1):
            return None
        symbol = self._names.get(start)
        return self._elf.name_of(symbol) if symbol else None

    def pieces(self) -> Iterator[Piece]:
        """Yield the code in order: each function, and what lies between functions."""
        load, guarded = self.at_load, self._guarded
        for code in self._elf.code:
            first = bisect.bisect_left(self._starts, code.address)
            last = bisect.bisect_left(self._starts, code.end)
            inside = self._starts[first:last]
            shift, reached = code.address - code.offset, code.address
            for start, following in pairwise([*inside, code.end]):
                yield from self._between(code, reached, start, sole=not inside)
                end = min(max(self._ends[start], start), following)
                end = following if following - end < _PADDING or end == start else end
                when: When = "default"
                if start in load and start not in self._checks_first:
                    when = "load"
                elif start in guarded or start in self._checks_first:
                    when = "guarded"
                local = start not in self._global
                yield Piece(start - shift, end - shift, shift, when, known=True, local=local)
                reached = end
            yield from self._between(code, reached, code.end, sole=not inside)

    def _between(self, code: Code, start: int, end: int, *, sole: bool) -> Iterator[Piece]:
        shift = code.address - code.offset
        if code.marked and end > start:
            when: When = (
                "guarded" if any(assembly for _, assembly in self._libraries) else "default"
            )
            yield Piece(start - shift, end - shift, shift, when, known=sole, local=True)

    @property
    def behind_known_checks(self) -> frozenset[str]:
        """Return the features that libraries in here use after their check."""
        return frozenset().union(*(features for features, _ in self._libraries))

    @cached_property
    def _libraries(self) -> list[tuple[frozenset[str], bool]]:
        data = self._elf.data
        return [
            (features, assembly)
            for text, features, assembly in libraries_by_text()
            if self._asks_itself and find(data, text, 0, len(data)) >= 0
        ]

    @property
    def exported(self) -> int:
        """Return how many functions other files can call."""
        return len(self._global)

    # When it runs

    @cached_property
    def at_load(self) -> frozenset[int]:
        """Return the functions that run when the file is loaded, or imported by Python."""
        reached = set(self.entries)
        open_ends = list(reached)
        while open_ends:
            for target in self.called_by(open_ends.pop()):
                if target not in reached and target not in self._guarded:
                    reached.add(target)
                    open_ends.append(target)
        return frozenset(reached)

    @cached_property
    def _guarded(self) -> frozenset[int]:
        """Return the functions that run only after a check of the CPU."""
        chosen = {
            target
            for start in self._resolvers
            for target in self.reached_by(start, tables=False)
            if not self._is_default(target)
        }
        if not self._asks_itself:
            return Guards(self, chosen, frozenset()).guarded
        trusted = self._trusted | self._ciphers
        guards = Guards(self, chosen | (self._named - self._nameless), trusted)
        self._checks_first = guards.checks_first
        return guards.guarded

    @cached_property
    def _ciphers(self) -> frozenset[int]:
        """Return the functions without a name of a library of ciphers that is linked in.

        They stand together: from the first to the last one with ADX, which no compiler writes.
        """
        data, found = self._elf.data, set[int]()
        if self._elf.arch == "x86_64" and find(data, _CIPHERS, 0, len(data)) >= 0:
            for code in self._elf.code:
                places = _ADX.finditer(data, code.offset, code.offset + code.size)
                found |= {place.start() + code.address - code.offset for place in places}
        if not found or max(found) - min(found) > _LARGEST_CIPHERS:
            return frozenset()
        first, last = min(found) - _BESIDE, max(found) + _BESIDE
        inside = self._starts[bisect.bisect_left(self._starts, first) :]
        return frozenset(start for start in inside if start < last and start not in self._names)

    def _is_default(self, start: int) -> bool:
        symbol = self._names.get(start)
        return symbol is not None and self._elf.name_of(symbol).endswith(".default")

    # What functions reach

    def size_of(self, start: int) -> int:
        """Return how many bytes a function has."""
        return self._end_of(start) - start

    @property
    def exported_by_module(self) -> frozenset[int]:
        """Return the functions that a module of Python exports beside what Python starts."""
        return frozenset(self._global if self._modules else ()) - self.entries

    def is_local(self, start: int) -> bool:
        """Return whether no other file calls a function; nobody links with a module of Python."""
        return bool(self._modules) or start not in self._global

    def reached_by(self, start: int, *, tables: bool = True) -> frozenset[int]:
        """Return the functions that a function calls or jumps to, or takes the address of.

        With `tables`, also those in tables that it takes the address of. Assembly jumps over the
        beginning of another function, whose registers it has saved.
        """
        found: set[int | None] = {near for _, near in self._body(self._machine.near_jumps, start)}
        for target, stored, calls in self._body(self._machine.targets, start):
            value = self._value(target) if stored else self._resolved(target)
            if value is None or value in self._ends or not calls:
                found.add(value)
            else:
                found.add(self._function_at(value))
            if tables and not stored and not calls:
                found.update(self._held_at(target))
        return frozenset(value for value in found if value in self._ends) - {start}

    def called_by(self, start: int) -> frozenset[int]:
        """Return the functions that a function calls or jumps to."""
        reached = self._body(self._machine.targets, start)
        called = ((target, stored) for target, stored, calls in reached if calls)
        found = {self._value(at) if stored else self._resolved(at) for at, stored in called}
        return frozenset(value for value in found if value in self._ends) - {start}

    def touched_by(self, start: int) -> Iterator[int]:
        """Yield the addresses of variables that a function reads, writes or takes."""
        for touched in self._body(self._machine.touched, start):
            address = self._slots.get(touched, touched)
            if any(first <= address < end for first, end in self._elf.writable):
                yield address

    def tested_by(self, start: int) -> Iterator[int]:
        """Yield the functions whose result a function compares."""
        for target in self._body(self._machine.tested_calls, start):
            if (function := self._resolved(target)) in self._ends:
                yield function

    def touching(self, blocks: Set[int]) -> frozenset[int]:
        """Return the functions that read or write a variable in one of these blocks of 8 bytes."""
        wanted = {8 * block + byte for block in blocks for byte in range(8)}
        return frozenset(
            self._function_at(place) or 0
            for code in self._elf.code
            for place in self._machine.touching(
                self._elf.data, code.offset, code.offset + code.size, code.address - code.offset,
                wanted,
            )
        )  # fmt: skip

    def _held_at(self, table: int) -> Iterator[int]:
        """Yield the functions in what may be a table here."""
        places, values = self._held
        at, end = bisect.bisect_left(places, table), table + _TABLE
        while at < len(places) and places[at] < min(end, table + _GAP):
            table = places[at]
            yield values[at]
            at += 1

    @cached_property
    def _held(self) -> tuple[array[int], array[int]]:
        rows = [row for row in zip(self._places, self._values, strict=True) if row[1] in self._ends]
        return array("Q", (place for place, _ in rows)), array("q", (value for _, value in rows))

    def _holds_level(self, table: int) -> bool:
        if table not in self._tables:
            self._tables[table] = any(map(self._needs_level_itself, self._held_at(table)))
        return self._tables[table]

    def needs_level(self, start: int, steps: int = 2) -> bool:
        """Return whether the code of a function, or all ways through it, need a level."""
        if (start, steps) not in self._ways:
            self._ways[start, steps] = False  # if it calls itself
            self._ways[start, steps] = self._needs_level_itself(start) or (
                steps > 0
                and self.size_of(start) <= _SHORT
                and any(self.needs_level(target, steps - 1) for target in self.reached_by(start))
                and self.paths(start, frozenset(), frozenset()).needs
            )
        return self._ways[start, steps]

    def _leads_to_level(self, start: int) -> bool:
        """Return whether a short function calls or jumps to one that needs a level."""
        if start not in self._leading:
            short = self.size_of(start) <= _SHORT
            self._leading[start] = short and any(map(self.needs_level, self.called_by(start)))
        return self._leading[start]

    def mentions_level(self, start: int) -> bool:
        """Return whether a function has code for a level, or refers to a function that does."""
        reached = self.reached_by(start)
        leads = any(map(self.needs_level, reached)) or any(map(self._leads_to_level, reached))
        return leads or self._needs_level_itself(start)

    def _needs_level_itself(self, start: int) -> bool:
        """Return whether the code of a function needs more than x86-64-v2."""
        if start not in self._needing:
            place, end = self._elf.offset_of(start), self._end_of(start)
            pieces = (
                [Piece(place, place + end - start, start - place, "default", known=True)]
                if place is not None
                else []
            )
            uses = self._machine.used_features(self._elf.data, pieces)
            self._needing[start] = any(self._machine.is_level(use.feature) for use, _ in uses)
        return self._needing[start]

    def paths(self, start: int, answers: Set[int], asking: Set[int]) -> Paths:
        """Return what the paths through a function have in common."""
        place = self._elf.offset_of(start)
        if place is None:
            return Paths()

        def means(instruction: Any) -> Meaning:
            for address, stored in x86.mentions(instruction):
                block = (self._slots.get(address, address) if stored else address) // 8
                if block in answers:
                    return Meaning.CHECK
                function = self._value(address) if stored else self._resolved(address)
                if instruction.flow_control != FlowControl.NEXT and function not in self._ends:
                    function = self._function_at(address)
                if function in asking:
                    return Meaning.CHECK
                if function in self._ends and function != start:
                    taken = not stored and instruction.flow_control == FlowControl.NEXT
                    return self._meaning_of(function, taken=taken)
                if not stored and self._holds_level(address):
                    return Meaning.LEVEL
            return Meaning.NOTHING

        end = place + self.size_of(start)
        found: Paths = self._machine.paths(self._elf.data, place, end, start - place, means)
        return found

    def _meaning_of(self, function: int, *, taken: bool) -> Meaning:
        """Return what it means to refer to a function, or to take its address."""
        if self.needs_level(function):
            return Meaning.LEVEL
        if taken and function not in self._in_slots and self._leads_to_level(function):
            return Meaning.LEADING
        return Meaning.POINTER if taken else Meaning.OTHER

    def references_to(self, wanted: Set[int]) -> Iterator[tuple[int, int]]:
        """Yield which function refers to one of these functions, and to which one.

        A table refers to what it holds on behalf of the functions that refer to the table. The
        source is 0 if it is not known.
        """
        yield from self._direct_references(wanted)
        tables = sorted(self._table_users)
        for slot, value in self._stored:
            if value in wanted:
                at = bisect.bisect_right(tables, slot) - 1
                known = at >= 0 and slot - tables[at] < _TABLE
                for source in self._table_users[tables[at]] if known else {0}:
                    yield source, value

    @cached_property
    def _stored(self) -> list[tuple[int, int]]:
        """Return the slots that hold a function, beside the linker's own."""
        ends, links = self._ends, self._links
        return [row for row in self._all_slots() if row[1] in ends and row[0] not in links]

    @cached_property
    def _table_users(self) -> dict[int, set[int]]:
        """Return which functions refer to what may be the beginning of a table of functions."""
        loaded = {place: place for place in self._beginnings()}
        places = frozenset(loaded)
        users: dict[int, set[int]] = defaultdict(set)
        for slot, value in self._all_slots():
            if value in places and slot in self._links:
                loaded[slot] = value
            elif value in places:
                users[value].add(0)
        for source, target, stored in self._references_in_code(places, loaded.keys()):
            users[loaded[target] if stored else target].add(source)
        return users

    def _beginnings(self) -> Iterator[int]:
        """Yield where a table may begin that holds a function, each place once."""
        reached: dict[int, int] = {}  # for each remainder
        for slot, _ in sorted(self._stored):
            before = max(slot - _TABLE, reached.get(slot % 8, slot - _TABLE))
            yield from range(before + 8, slot + 8, 8)
            reached[slot % 8] = slot

    def _direct_references(self, wanted: Set[int]) -> Iterator[tuple[int, int]]:
        slots = {slot: value for slot, value in self._all_slots() if value in wanted}
        stubs = {stub: slots[slot] for stub, slot in self._stubs.items() if slot in slots}
        places = {**stubs, **{start: start for start in wanted if start > 0}}
        for source, target, stored in self._references_in_code(places.keys(), slots.keys()):
            yield source, slots[target] if stored else places[target]
        for place, target in places.items():
            code = self._code_at(place)
            if code is not None:
                shift = code.address - code.offset
                first, end = max(place - 130, code.address), min(place + 128, code.end)
                window = self._elf.data, first - shift, end - shift, shift
                for source, near in self._machine.near_jumps(*window):
                    if near == place:
                        yield self._function_at(source) or 0, target

    def _references_in_code(
        self, places: Set[int], slots: Set[int]
    ) -> Iterator[tuple[int, int, bool]]:
        linkers = {section.address for section in self._plts}
        for code in self._elf.code:
            if code.address in linkers:
                continue
            shift = code.address - code.offset
            for start in range(code.offset, code.offset + code.size, _READ_AT_ONCE):
                end = min(start + _READ_AT_ONCE, code.offset + code.size)
                for place, target, stored in self._machine.references(
                    self._elf.data, start, end, shift, (places, slots)
                ):
                    yield self._function_at(place) or 0, target, stored
                forget(self._elf.data, start, end)

    def _body(self, read: Callable[..., Iterator[Any]], start: int) -> Iterator[Any]:
        place = self._elf.offset_of(start)
        if place is not None:
            end = place + self._end_of(start) - start
            yield from read(self._elf.data, place, end, start - place)

    @cached_property
    def _plts(self) -> list[Section]:
        return list(self._elf.named(".plt", ".plt.sec", ".plt.got", ".iplt"))

    @cached_property
    def _stubs(self) -> dict[int, int]:
        """Return the stubs of the linker: where they begin, and the slot that each jumps to."""
        found = {}
        # A file without sections has them somewhere in its code.
        areas = self._plts if self._elf.sections else self._elf.code
        for area in areas:
            for at in range(0, area.size, 4):
                place, address = area.offset + at, area.address + at
                slot = self._machine.stub_slot(self._elf.data, place, address)
                if slot is not None:
                    found[address] = slot
        return found

    def _all_slots(self) -> Iterator[tuple[int, int]]:
        yield from zip(self._places, self._values, strict=True)
        yield from self._slots.items()

    def _value(self, slot: int) -> int | None:
        """Return the address that the loader writes into a slot."""
        at = bisect.bisect_left(self._places, slot)
        if at < len(self._places) and self._places[at] == slot:
            return self._values[at]
        return self._slots.get(slot)

    def _resolved(self, address: int) -> int | None:
        """Return where a call ends that may go through a stub of the linker."""
        if address in self._ends or address not in self._stubs:
            return address
        return self._value(self._stubs[address])

    def _end_of(self, start: int) -> int:
        at = bisect.bisect_right(self._starts, start)
        following = self._starts[at] if at < len(self._starts) else self._code_end(start)
        end = self._ends[start]
        return min(end, following) if end > start else following

    def _measured_end(self, start: int) -> int:
        """Return where a function ends that no table gives a size."""
        place, following = self._elf.offset_of(start), self._end_of(start)
        if place is None:
            return start
        size = following - start
        return start + int(self._machine.extent(self._elf.data, place, place + size))

    def _code_end(self, start: int) -> int:
        code = self._code_at(start)
        return code.end if code else start

    def _code_at(self, address: int) -> Code | None:
        codes = self._elf.code
        at = bisect.bisect_right(codes, address, key=lambda code: code.address) - 1
        return codes[at] if at >= 0 and address < codes[at].end else None

    def _function_at(self, address: int) -> int | None:
        at = bisect.bisect_right(self._starts, address) - 1
        return self._starts[at] if at >= 0 and address < self._stops[at] else None

    @cached_property
    def _stops(self) -> list[int]:
        return [self._end_of(start) for start in self._starts]

    def _start_before(self, address: int) -> int | None:
        at = bisect.bisect_right(self._starts, address) - 1
        return self._starts[at] if at >= 0 else None

    # Where it is read from

    def _add(self, start: int, end: int = 0) -> bool:
        if self._code_at(start) is None:
            return False
        self._ends[start] = max(self._ends.get(start, 0), end, start)
        return True

    def _labels(self) -> list[Symbol]:
        """Return labels for a level outside of the functions that are known, and what follows one.

        The assembly of BLAKE3 says nowhere that its labels are functions. Others name constants.
        """
        symbols = self._elf.symbols(*LABELS)
        labels = [each for each in symbols if each.address >= self._end_before(each.address)]
        names = {each.address: self._elf.name_of(each) for each in labels}
        named = {at for at, name in names.items() if is_of_library(name) or is_for_level(name)}
        wanted = named.union(after for at, after in pairwise(sorted(names)) if at in named)
        return [each for each in labels if each.address in wanted]

    def _read_symbols(self, symbols: Iterable[Symbol]) -> None:
        asking = asking_names()
        for symbol in symbols:
            name = self._elf.name_of(symbol)
            if not self._add(symbol.address, symbol.address + symbol.size):
                continue
            self._names.setdefault(symbol.address, symbol)
            if not symbol.local:
                self._global.add(symbol.address)
            if is_of_library(name):
                self._trusted.add(symbol.address)
            else:
                (self._named if is_for_level(name) else self._nameless).add(symbol.address)
            if symbol.ifunc:
                self._resolvers.add(symbol.address)
            if name.startswith("PyInit_"):
                self._modules.add(symbol.address)
            if name in asking:
                self.asking.add(symbol.address)

    @cached_property
    def _asking_slots(self) -> bool:
        names = (self._elf.name_of(symbol) for symbol in self._elf.symbols(defined=False))
        return not asking_names().isdisjoint(names)

    def _read_frames(self) -> None:
        """Read the table for unwinding: it names every function that a compiler made."""
        for address in self._elf.frame_tables():
            rows = list(islice(self._elf.rows_at(_FRAME_HEADER, address, _FRAME_HEADER.size), 1))
            if not rows or rows[0][:4] != _USUAL_TABLE:
                continue
            count = rows[0][5]
            table = self._elf.rows_at(_FRAME_ROW, address + _FRAME_HEADER.size, 8 * count)
            for start, frame in table:
                size = self._frame_size(address + frame)
                self._add(address + start, address + start + size)

    def _frame_size(self, address: int) -> int:
        place = self._elf.offset_of(address)
        if place is None or place + _FRAME.size > len(self._elf.data):
            return 0
        size: int = _FRAME.unpack_from(self._elf.data, place)[3]
        return size

    def _read_relocations(self) -> None:
        """Note what the loader writes: targets of calls between functions, entries of arrays."""
        dynamic, arch = self._elf.dynamic, self._elf.arch
        relative, irelative = _RELATIVE[arch], _IRELATIVE[arch]
        links, stores = _LINKS[arch], _STORES[arch]
        self._slots: dict[int, int] = {}
        self._links: set[int] = set()  # the slots that only code refers to
        rows: list[tuple[int, int]] = []
        tables = [
            (dynamic.get(_DT_RELA), dynamic.get(_DT_RELA_SIZE, 0)),
            (dynamic.get(_DT_JMPREL), dynamic.get(_DT_PLT_SIZE, 0)),
        ]
        for address, size in tables:
            for place, info, addend in islice(
                self._elf.rows_at(_RELA, address, size) if address else (), _MOST_ROWS
            ):
                kind = info & 0xFFFFFFFF
                if kind == relative:
                    rows.append((place, addend))
                elif kind == irelative and self._add(addend):
                    self._resolvers.add(addend)
                elif kind in links or kind in stores:
                    target = self._symbol(info >> 32)
                    # 0: a place in another file
                    self._slots[place] = target + addend if target > 0 else target
                    if kind in links:
                        self._links.add(place)
        rows += self._packed_relocations()
        rows.sort()
        # Numbers in a row: a large file has a million of them.
        self._places = array("Q", (place for place, _ in rows))
        self._values = array("q", (value for _, value in rows))

    def _packed_relocations(self) -> Iterator[tuple[int, int]]:
        """Yield the slots of DT_RELR: an address, then words with a bit for each slot behind it."""
        dynamic = self._elf.dynamic
        if _DT_RELR not in dynamic:
            return
        following = 0
        table = self._elf.rows_at(_SLOT, dynamic[_DT_RELR], dynamic.get(_DT_RELR_SIZE, 0))
        for (word,) in islice(table, _MOST_ENTRIES):
            if word & 1 == 0:
                places = [word]
                following = word + 8
            else:
                places = [following + 8 * bit for bit in range(63) if word >> bit + 1 & 1]
                following += 8 * 63
            for place in places:
                for (stored,) in self._elf.rows_at(_SLOT, place, 8):
                    yield place, stored

    def _symbol(self, index: int) -> int:
        """Return the address of a symbol of this file; of others, ASKS or 0."""
        table = self._elf.dynamic.get(_DT_SYMTAB, 0)
        for name, _, _, section, value, _ in self._elf.rows_at(_SYMBOL, table + 24 * index, 24):
            if section:
                return int(value)
            if self._asking_slots and self._elf.dynamic_name(name) in asking_names():
                return ASKS
        return 0

    @cached_property
    def _init_entries(self) -> frozenset[int]:
        found = {self._elf.dynamic[_DT_INIT]} if _DT_INIT in self._elf.dynamic else set()
        for start, end in self._arrays():
            rows = self._elf.rows_at(_SLOT, start, end - start)
            for at, (stored,) in enumerate(islice(rows, _MOST_ENTRIES)):
                value = self._value(start + 8 * at)
                found.add(stored if value is None else value)
        return frozenset(found.difference(_NO_ENTRY))

    def _arrays(self) -> Iterator[tuple[int, int]]:
        dynamic = self._elf.dynamic
        for tag, size in (
            (_DT_INIT_ARRAY, _DT_INIT_ARRAY_SIZE), (_DT_PREINIT_ARRAY, _DT_PREINIT_ARRAY_SIZE),
        ):  # fmt: skip
            if tag in dynamic:
                yield dynamic[tag], dynamic[tag] + dynamic.get(size, 0)
        for section in self._elf.named(".ctors"):
            yield section.address, section.address + section.size
