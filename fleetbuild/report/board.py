"""The state of a run as its events tell it: pure, so that time left can be tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fleetbuild.models import Event

# Below this share of a build its speed says little about the rest.
ENOUGH = 0.02


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
    nodes_done: set[str] = field(default_factory=set)

    def elapsed(self, now: float) -> float:
        """How long this group took so far, or took in all."""
        return (self.ended or now) - self.began

    def left(self, now: float) -> float | None:
        """How much longer this stage takes, as far as its own pace tells."""
        if self.counting_since is None or not self.total or self.ended is not None:
            return None
        share = self.done / self.total
        if share < ENOUGH:
            return None
        return max(0.0, (now - self.counting_since) * (1 - share) / share)


class Board:
    """All rows, in the order in which the groups first spoke."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def rows(self) -> list[Row]:
        """The rows; events that belong to no group share one, which goes when groups speak."""
        named = [row for row in self._rows.values() if row.name != "all"]
        return named or list(self._rows.values())

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
        name = event.group or "all"
        row = self._rows.setdefault(name, Row(name, began=now, stage_began=now))
        if event.stage != row.stage:
            row.stage, row.stage_began = event.stage, now
            row.done = row.total = 0
            row.counting_since = None
        if event.total:
            row.done, row.total = event.done or 0, event.total
            row.counting_since = row.stage_began
        row.message = event.message
        self._note_end(row, event, now)

    def _note_end(self, row: Row, event: Event, now: float) -> None:
        if event.node and event.stage in ("activate", "verify") and event.state == "ok":
            row.nodes_done.add(event.node)
        if event.state == "failed" and event.node is None:
            row.state, row.ended = "failed", now
        elif event.stage == "done":
            row.state, row.ended = "done", now
