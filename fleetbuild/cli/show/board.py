"""The state of a run as its events tell it. Pure, so that times and counts can be tested.

In: events and the time at which they arrived. Out: a row for each group. `progress` shows the rows
at a terminal; `log_lines` uses them for the counts in a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleetbuild.models import Event, Stage
from fleetbuild.text import count, fold

# Below this share of a build its speed says little about the rest.
ENOUGH = 0.02
# A failure in these stages stops the whole group; in others it stops one node.
OF_THE_GROUP = ("toolchain", "build", "fetch", "audit")
# What a node does once it has ended a stage of an install.
_NEXT: dict[Stage, Stage] = {"distribute": "install", "install": "verify", "verify": "activate"}
_ORDER = ("distribute", "install", "verify", "activate")
_ENDED = ("ok", "failed", "skipped", "unreachable")
_OWN_CALL = "# $ "  # as the role build_wheel notes its own steps in the log
# The steps of a build before its own output, by a part of their commands.
_OWN_STEPS = {
    " -m venv ": "making its environment",
    ".extractall(": "making its environment",
    " --target ": "unpacking the CUDA toolkit",
    " install ": "installing build requirements",
    " wheel -v ": "starting the package's own build",
    " auditwheel repair ": "copying system libraries into the wheel",
}
_NUMBER = re.compile(r"^\s*\[\s*\d+/\d+\]\s*")
_COMPILER = re.compile(
    r"^\S*(?:cc|\+\+|clang|nvcc|gfortran)(?:-[\d.]+)? (?:.* )?-c (?:-c )?([^-\s]\S*)"
)


@dataclass
class Row:
    """How far one group is."""

    name: str
    began: float
    nodes: set[str] = field(default_factory=set)  # to change
    stage: Stage | Literal[""] = ""
    stage_began: float = 0
    state: Literal["running", "failed", "done"] = "running"
    done: int | None = None
    total: int | None = None
    counting_since: float | None = None
    ended: float | None = None
    message: str = ""
    wave: Stage | None = None  # the stage that the nodes at work go through as a whole
    working: dict[str, Stage] = field(default_factory=dict)  # nodes at work, and their stage
    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    awaited: dict[str, float] = field(default_factory=dict)  # silent nodes, and since when
    unprobed: set[str] = field(default_factory=set)  # nodes that a probe under way waits for

    @property
    def waits(self) -> bool:
        """Whether other groups build, and this one has its wheels or gets them from another."""
        return self.stage == "build" and self.name != "all" and not self.working

    def elapsed(self, now: float) -> float:
        """Return how long this group has taken."""
        return (now if self.ended is None else self.ended) - self.began

    def said(self, now: float) -> tuple[str, str]:
        """Return the nodes at work and what the last event said, or the nodes awaited."""
        if self.awaited and self.ended is None:
            seconds = max(now - since for since in self.awaited.values())
            return f"waiting for {fold(self.awaited, 60)} ({seconds:.0f} s)", ""
        if self.stage == "probe" and self.unprobed:
            return f"waiting for {fold(self.unprobed, 60)}", ""
        if self.wave and self.state == "failed":
            return f"{len(self.nodes & self.succeeded)} of {count(len(self.nodes), 'node')}", ""
        at_work = (name for name, at in self.working.items() if at == self.stage)
        return fold(at_work, 60), self.message

    def step(self) -> str:
        """Return [n/m] of the compiler, the files or the nodes; compiled files if m is unknown."""
        if self.wave and self.nodes:
            return f"[{len(self.nodes & (self.succeeded | self.failed))}/{len(self.nodes)}]"
        if self.total:
            return f"[{self.done or 0}/{self.total}]"
        return f"{self.done} compiled" if self.done else ""

    def left(self, now: float) -> float | None:
        """Return how much longer this build takes at its pace so far, if that is known."""
        if self.counting_since is None or not self.total or self.ended is not None:
            return None
        share = (self.done or 0) / self.total
        if share < ENOUGH:
            return None
        return max(0.0, (now - self.counting_since) * (1 - share) / share)


class Board:
    """All rows: one for each group that is to be changed, or one for a run without groups."""

    def __init__(
        self, groups: Mapping[str, Sequence[str]] | None = None, *, now: float = 0
    ) -> None:
        """`groups` maps each group to the nodes that are to be changed."""
        self._rows = {
            name: Row(name, began=now, stage_began=now, nodes=set(nodes))
            for name, nodes in (groups or {}).items()
        }
        self._all = Row("all", began=now, stage_began=now)

    def rows(self) -> list[Row]:
        """Return the rows in order; a run that has named no group yet has one row."""
        return list(self._rows.values()) or [self._all]

    def row(self, event: Event, now: float = 0) -> Row:
        """Return the row that an event belongs to; a group gets one with its first work."""
        if event.group is None or (event.stage == "check" and event.group not in self._rows):
            return self._all
        fresh = Row(event.group, began=now, stage_began=now)
        return self._rows.setdefault(event.group, fresh)

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
        if event.group is not None:
            _note(self.row(event, now), event, now)
            return
        for row in [*self._rows.values(), self._all]:
            # A node without a group changes no row but the one for all; its count is the run's.
            if row.state == "running" and (event.node is None or event.total or row is self._all):
                message = "" if event.node else event.message
                if event.stage == "probe" and event.node:
                    left = row.unprobed if row.stage == "probe" else row.nodes
                    row.unprobed = set() if event.done == event.total else left - {event.node}
                _note(row, event.model_copy(update={"node": None, "message": message}), now)


def brief(line: str) -> str:
    """Return a build's line without [n/m], which has a place of its own; a call as its source."""
    line = _NUMBER.sub("", line)
    if line.startswith(_OWN_CALL):
        words = (words for part, words in _OWN_STEPS.items() if part in line)
        return next(words, line.replace(_OWN_CALL, "running ", 1))
    call = _COMPILER.match(line)
    return f"compiling {call[1]}" if call else line


def _note(row: Row, event: Event, now: float) -> None:
    if event.state == "waiting" and event.node:
        row.awaited[event.node] = now - (event.seconds or 0)
        return
    row.awaited.pop(event.node or "", None)
    _note_nodes(row, event)
    _note_stage(row, event, now)
    if event.state == "failed" and event.group and event.stage in OF_THE_GROUP:
        row.state, row.ended = "failed", now
    elif event.stage == "done" or (row.nodes and row.nodes <= row.succeeded | row.failed):
        well = row.nodes <= row.succeeded if row.nodes else event.state == "ok"
        row.state = "done" if well else "failed"
        row.ended = now if row.ended is None else row.ended
    if row.ended is not None:
        row.awaited.clear()
        row.working.clear()


def _note_nodes(row: Row, event: Event) -> None:
    """Note which nodes are at work, and which have ended."""
    if event.state == "started" and event.nodes:
        row.wave = None if event.stage == "build" else event.stage
        first: Stage = "distribute" if event.stage == "install" else event.stage
        row.working = dict.fromkeys(event.nodes, first)
        if row.wave:
            row.nodes |= set(event.nodes)
        return
    if event.stage == "label":
        return  # it comes after a node has ended, and changes nothing about its release
    if event.state in _ENDED:
        ended = {event.node} if event.node else set(event.nodes or ())
        stage_failed = event.state == "failed" and event.node is None  # it names the good nodes
        if event.state != "ok" and not stage_failed:
            _end(row, ended, row.failed, event)
        elif row.wave == "install" and event.node and event.stage in _NEXT:
            row.working[event.node] = _NEXT[event.stage]
        else:
            _end(row, ended, row.succeeded, event)


def _end(row: Row, nodes: set[str], where: set[str], event: Event) -> None:
    for name in nodes:
        row.working.pop(name, None)
    if event.stage not in OF_THE_GROUP and not (event.stage == "probe" and event.state == "ok"):
        where |= nodes


def _note_stage(row: Row, event: Event, now: float) -> None:
    stage: Stage = event.stage
    if row.wave == "install" and row.working:
        stage = min(row.working.values(), key=_ORDER.index)
    if stage != row.stage or event.state == "started":
        row.stage, row.stage_began = stage, now
        row.done = row.total = row.counting_since = None
        row.message = ""
    if event.total or event.done is not None:
        row.done, row.total = event.done, event.total
        row.counting_since = row.stage_began if event.total else None
    if event.state == "started" and event.stage == "build" and event.package:
        row.message = f"{event.package} {event.message}"
    elif event.stage == "build" and event.state == "ok":
        row.message = ""
    elif event.message and event.state != "ok" and not row.working.keys() & (event.nodes or ()):
        row.message = brief(event.message.partition("\n")[0])
