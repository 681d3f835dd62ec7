"""Events as they happen: a row for each group at a terminal, lines in a log, JSON for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from fleetbuild.models import Event, OnEvent, ignore
from fleetbuild.report.board import Board
from fleetbuild.report.output import Output
from fleetbuild.report.text import clean, duration

if TYPE_CHECKING:
    from rich.table import Table


# Columns that stage, step, nodes and both times take at most; what is left is for the message.
NUMBERS = 55


@contextmanager
def listening(out: Output, groups: Mapping[str, int] | None = None) -> Iterator[OnEvent]:
    """The callback that shows a run in the way that fits where its output goes."""
    if out.json:
        yield lambda event: out.text(event.model_dump_json(exclude_none=True) + "\n")
    elif out.live:
        with _live(out, Board(groups, now=time.monotonic())) as on_event:
            yield on_event
    else:
        yield _lines(out)


@contextmanager
def waiting(out: Output, what: str) -> Iterator[OnEvent]:
    """A short wait: a spinner at a terminal, else nothing but what goes wrong, with -v."""
    if out.live:
        with out.console.status(f"{clean(what)} …") as status:
            yield _counting(what, status.update)
    else:
        yield _lines(out) if out.verbose and not out.json else ignore


def _counting(what: str, update: Callable[[str], None]) -> OnEvent:
    answered: set[str] = set()

    def show(event: Event) -> None:
        if event.node and event.state != "started":
            answered.add(event.node)
            update(f"{clean(what)} … {len(answered)} answered")

    return show


def line(event: Event) -> str:
    """`group stage state message`, stable and easy to grep."""
    words = [clean(event.group or event.node or "all"), event.stage, event.state]
    if event.group and event.node:
        words.append(clean(event.node))
    if event.package:
        words.append(clean(event.package))
    if event.total:
        words.append(f"[{event.done or 0}/{event.total}]")
    if event.message:
        words.append(clean(event.message))
    if event.seconds is not None and event.state not in ("progress", "waiting"):
        words.append(f"({duration(event.seconds)})")
    return " ".join(words)


def _clock(event: Event) -> str:
    return datetime.fromisoformat(event.time).astimezone().strftime("%H:%M:%S")


def _lines(out: Output) -> OnEvent:
    def show(event: Event) -> None:
        if event.state == "waiting":
            out.say(f"{_clock(event)} {line(event)}")
        elif event.state != "progress" or out.verbose:
            out.say(line(event))
            if event.fix:
                out.say(f"  fix: {clean(event.fix)}")

    return show


@contextmanager
def _live(out: Output, board: Board) -> Iterator[OnEvent]:
    from rich.live import Live

    with Live(
        get_renderable=lambda: rows(board, time.monotonic(), out.console.width),
        console=out.console,
        refresh_per_second=4,
        transient=True,
    ) as live:
        yield _at_terminal(board, live.console.print, verbose=out.verbose)


def _at_terminal(board: Board, say: Callable[[str], None], *, verbose: bool) -> OnEvent:
    def show(event: Event) -> None:
        board.take(event, time.monotonic())
        if event.state in ("failed", "unreachable", "warning") or (
            verbose and event.state not in ("progress", "waiting")
        ):
            say(line(event))
            if event.fix:
                say(f"  fix: {clean(event.fix)}")

    return show


def rows(board: Board, now: float, width: int = 120) -> Table:
    """One row for each group: where it is, how far, how long, how much longer."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("group", "stage", "step", "nodes", "time", "left"):
        table.add_column(heading, no_wrap=True)
    table.add_column("", no_wrap=True)
    room = width - max((len(row.name) for row in board.rows()), default=0) - NUMBERS
    for row in board.rows():
        left = row.left(now)
        table.add_row(
            clean(row.name),
            row.stage,
            f"[{row.done}/{row.total}]" if row.total else "",
            f"{len(row.nodes_done)}/{row.nodes}" if row.nodes else "",
            duration(row.elapsed(now)),
            f"~{duration(left)}" if left is not None else "",
            clean(row.said(now), limit=room) if room > 0 else "",
            style={"failed": "red", "done": "green"}.get(row.state),
        )
    return table
