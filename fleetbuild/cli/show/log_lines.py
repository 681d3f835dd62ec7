"""A run's events as sentences: the lines of a log, and what a terminal shows above its rows.

In: events. Out: lines to print. Their number is bounded: work that goes on has a line in `PACE`
seconds for each group, and nodes that fail share one. The reason of a failure, and what to do, are
told once: at the end of the run, or by `without_end` if it is interrupted.
"""

from __future__ import annotations

from datetime import datetime

from fleetbuild.cli.show.board import Board, Row, brief
from fleetbuild.cli.show.text import Trouble, duration, quoted, shortened, troubles
from fleetbuild.models import Event, Stage, now
from fleetbuild.text import clean, count, fold

PACE = 30.0  # seconds
_LONGEST = 160  # characters of a compiler's line
DOING: dict[str, str] = {
    "inventory": "reading the inventory",
    "probe": "probing",
    "plan": "planning",
    "check": "checking the fleet against the plan",
    "toolchain": "installing the toolchain",
    "build": "building",
    "fetch": "fetching",
    "audit": "auditing",
    "distribute": "copying",
    "install": "installing",
    "verify": "verifying",
    "activate": "switching the release",
    "label": "labelling",
    "manifests": "writing manifests",
}
_DONE: dict[Stage, str] = {
    "check": "fleet checked against the plan",
    "build": "ready",  # built now, or found built on the node
    "fetch": "fetched",
    "audit": "audited",
    "distribute": "wheels copied",
    "install": "installed",
    "verify": "verified",
    "activate": "switched",
    "label": "labelled",
}
_FAILED: dict[Stage, str] = {
    "build": "failed to build",
    "fetch": "could not be fetched",
    "audit": "failed the audit",
    "install": "failed to install",
    "verify": "failed to verify",
    "label": "not labelled",
}


class LogLines:
    """Turns events into lines; `failures_only` leaves out what goes well."""

    def __init__(self, board: Board, *, failures_only: bool = False, verbose: bool = False) -> None:
        self._board = board
        self._failures_only = failures_only and not verbose
        self._verbose = verbose
        self._told: dict[str, float] = {}  # when a group last had a line
        self._failed: dict[str, Trouble] = {}  # nodes that failed or did not answer
        self._silent: set[str] = set()  # nodes that the probe did not reach
        self._new: dict[str, list[str]] = {}  # nodes by what happened, until their line is printed

    def take(self, event: Event, at: float) -> list[str]:
        """Return the lines for an event that the board has taken."""
        if event.stage == "done":
            return []
        if not self._verbose and event.node and not event.package and event.state != "waiting":
            if event.state in ("failed", "unreachable"):
                self._note(event)
            if event.stage in ("check", "probe", "label") or event.node in self._failed:
                ended = event.stage == "probe" and event.done == event.total
                return [*self.failed_nodes(), *self._probed(event)] if ended else []
        if not self._verbose and event.package and event.state == "failed":
            what = _FAILED.get(event.stage, "failed")
            self._failed[event.package] = (what, event.message, event.fix, event.log)
        lines = self.failed_nodes()
        last = self._told.setdefault(event.group or "", at)
        if self._is_due(event, at - last):
            self._told[event.group or ""] = at
            lines += self._lines(event, at)
        return lines

    def without_end(self, *, interrupted: bool = False) -> list[str]:
        """Return why all nodes failed, and how many are left, of a run that does not end."""
        lines = troubles(self._failed)
        nodes = {name: name in row.succeeded for row in self._board.rows() for name in row.nodes}
        if interrupted and nodes:
            done = sum(nodes.values())
            lines.append(f"{done} of {count(len(nodes), 'node')} done, {len(nodes) - done} left")
        return [line if line.startswith("  ") else stamped(line) for line in lines]

    def failed_nodes(self) -> list[str]:
        """Return the lines for the nodes that failed since the last call; the end says why."""
        new, self._new = self._new, {}
        return [stamped(f"{what}: {fold(names)}") for what, names in new.items()]

    def _note(self, event: Event) -> None:
        if event.node is None or event.node in self._failed:
            return
        what = "unreachable" if event.state == "unreachable" else _FAILED.get(event.stage, "failed")
        self._failed[event.node] = (what, event.message, event.fix, event.log)
        if event.state == "unreachable" and event.stage in ("check", "probe"):
            self._silent.add(event.node)
        else:
            self._new.setdefault(what, []).append(event.node)

    def _probed(self, event: Event) -> list[str]:
        if self._failures_only and not self._silent:
            return []
        well = count((event.total or 0) - len(self._silent), "node")
        others = f", {len(self._silent)} did not: {fold(self._silent)}" if self._silent else ""
        return [stamped(f"{well} answered{others}", event.time)]

    def _is_due(self, event: Event, silent: float) -> bool:
        if event.state == "warning":
            return True
        if event.state in ("failed", "unreachable"):
            # The end of a stage says less than the failures in it.
            return self._verbose or not (event.package is None and event.node is None)
        if self._failures_only:
            return event.state == "skipped"
        if event.state == "progress" or (event.node and not event.package):
            return self._verbose or silent >= PACE
        return True

    def _lines(self, event: Event, at: float) -> list[str]:
        row = self._board.row(event, at)
        said, *printed = (event.message or "").strip().splitlines() or [""]
        at_the_end = event.state in ("failed", "unreachable", "skipped") and not self._verbose
        if at_the_end:
            said, printed = "", []
        words = _SENTENCES.get(event.state, _went_wrong)(event, row, said)
        if event.state == "progress":
            words += f" ({duration(at - row.stage_began)} so far)"
        lines = [stamped(f"{event.group}: {words}" if event.group else words, event.time)]
        lines += quoted(printed)
        for label, text in (("fix", event.fix), ("log", event.log)):
            if text and not at_the_end:
                lines.append(f"  {label}: {clean(text)}")
        return lines


def still_running(board: Board, at: float) -> list[str]:
    """Return a line for each group that is at work, for a log that has been silent."""
    lines, rows = [], board.rows()
    for row in [row for row in rows if not row.waits] or rows:
        if row.state == "running" and row.stage:
            who = f"{row.name}: " if row.name != "all" else ""
            doing = f"{who}still {DOING.get(row.stage, row.stage)} {row.step()}".rstrip()
            said = shortened(": ".join(filter(None, row.said(at))), _LONGEST)
            took = f" ({duration(row.elapsed(at))} so far)"
            lines.append(stamped(": ".join(filter(None, (doing, said))) + took))
    return lines


def stamped(line: str, time: str | None = None) -> str:
    """Return a line with the local time in front."""
    clock = datetime.fromisoformat(time or now()).astimezone().strftime("%H:%M:%S")
    return f"{clock} {clean(line)}"


def _took(event: Event) -> str:
    return f" ({duration(event.seconds)})" if event.seconds is not None else ""


def _started(event: Event, _: Row, said: str) -> str:
    doing = DOING.get(event.stage, event.stage)
    if event.stage == "check":
        return doing
    if event.package:
        return f"{doing} {event.package} {said} on {event.node}"
    if event.nodes:
        return f"{doing} on {said or count(len(event.nodes), 'node')}: {fold(event.nodes)}"
    return f"{doing} {said}".rstrip()


def _ended(event: Event, row: Row, said: str) -> str:
    done = _DONE.get(event.stage, event.stage)
    if event.stage == "check":
        words = done
    elif event.package:
        words = f"{event.package} {said} on {event.node}" if event.node else f"{said} audited"
    elif event.node:
        of = ""
        if event.stage in ("activate", row.wave) and row.nodes:
            of = f", {len(row.nodes & row.succeeded)} of {len(row.nodes)} in the group"
        words = f"{event.node} {said or done}{of}"
    elif event.nodes is not None:
        words = f"{done} on {fold(event.nodes)}"
    else:
        words = f"{said} {done}" if event.stage != "manifests" else f"manifests written: {said}"
    return f"{words}{_took(event)}"


def _going_on(event: Event, row: Row, said: str) -> str:
    if event.group and event.node is None:
        return said
    what = " ".join(filter(None, (DOING.get(event.stage, event.stage), event.package)))
    where = f" on {event.node}" if event.node else ""
    step = f"{' ' if row.total else ', '}{row.step()}" if row.step() else ""
    return f"{what}{where}{step}{': ' if said else ''}{shortened(brief(said), _LONGEST)}"


def _warned(_: Event, __: Row, said: str) -> str:
    return f"warning: {said}"


def _went_wrong(event: Event, _: Row, said: str) -> str:
    because = f": {said}" if said else ""
    if event.state == "skipped":
        names = fold(event.nodes or filter(None, [event.node]))
        return f"{'not reached' if event.nodes else 'skipped'}: {names}{because}"
    if event.package is None and event.node is None:
        return f"{DOING.get(event.stage, event.stage)} ended: {said}{_took(event)}"
    what = _FAILED.get(event.stage, "failed")
    if event.state == "unreachable":
        what = "unreachable"
    where = f" on {event.node}" if event.package and event.node else ""
    own = f"{event.node} says: "
    if said.startswith(own):
        verb = ", which says" if event.package else " and says"
        because = f"{verb}: {said.removeprefix(own)}"
    return f"{event.package or event.node} {what}{where}{because}"


_SENTENCES = {
    "started": _started,
    "ok": _ended,
    "progress": _going_on,
    "waiting": lambda _, __, said: said,
    "warning": _warned,
}
