"""The state of a run as its events tell it: pure, so that time left can be tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetbuild.models import Event

# Below this share of a build its speed says little about the rest.
ENOUGH = 0.02
# A failure in these is the whole group's; in others it is one node's.
OF_THE_GROUP = ("toolchain", "build", "fetch", "audit")


@dataclass
class Row:
    """How far one group is."""

    name: str
    began: float
    stage: str = ""
    stage_began: float = 0
    state: Literal["running", "failed", "done"] = "running"
    done: int = 0
    total: int = 0
    counting_since: float | None = None
    ended: float | None = None
    message: str = ""
    nodes: int = 0
    nodes_done: set[str] = field(default_factory=set)
    awaited: dict[str, float] = field(default_factory=dict)  # since when

    def elapsed(self, now: float) -> float:
        """How long this group took so far, or took in all."""
        return (self.ended or now) - self.began

    def said(self, now: float) -> str:
        """The nodes that it waits for, else what it said last."""
        if not self.awaited:
            return self.message
        nodes = (f"{name} ({now - since:.0f} s)" for name, since in self.awaited.items())
        return f"waiting for {', '.join(nodes)}"

    def left(self, now: float) -> float | None:
        """How much longer this stage takes, as far as its own pace tells."""
        if self.counting_since is None or not self.total or self.ended is not None:
            return None
        share = self.done / self.total
        if share < ENOUGH:
            return None
        return max(0.0, (now - self.counting_since) * (1 - share) / share)


class Board:
    """All rows: one for each group that is to be changed, or one for a run without groups."""

    def __init__(self, groups: Mapping[str, int] | None = None, *, now: float = 0) -> None:
        """`groups` says how many nodes each has that are to be changed."""
        self._rows = {
            name: Row(name, began=now, stage_began=now, nodes=nodes)
            for name, nodes in (groups or {}).items()
        }

    def rows(self) -> list[Row]:
        """The rows, in order."""
        return list(self._rows.values())

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
        if event.group is None and event.node is None:
            for row in self._rows.values() or [self._row("all", now)]:
                if row.state == "running":
                    _note(row, event, now)
        else:
            _note(self._row(event.group or "all", now), event, now)

    def _row(self, name: str, now: float) -> Row:
        # What concerns no group of the run shares a row, where there is room for one.
        if name not in self._rows and name == "all" and self._rows:
            return Row(name, began=now)
        return self._rows.setdefault(name, Row(name, began=now, stage_began=now))


def _note(row: Row, event: Event, now: float) -> None:
    if event.state == "waiting" and event.node:
        row.awaited[event.node] = now - (event.seconds or 0)
        return
    if event.node:
        row.awaited.pop(event.node, None)
    if event.stage != row.stage:
        row.stage, row.stage_began = event.stage, now
        row.done = row.total = 0
        row.counting_since = None
    if event.total:
        row.done, row.total = event.done or 0, event.total
        row.counting_since = row.stage_began
    row.message = event.message
    if event.node and event.stage in ("activate", "verify") and event.state == "ok":
        row.nodes_done.add(event.node)
    if event.state == "failed" and event.group and event.stage in OF_THE_GROUP:
        row.state, row.ended = "failed", now
    elif event.stage == "done":
        row.state, row.ended = "done", now
