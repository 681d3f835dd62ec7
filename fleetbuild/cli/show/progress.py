"""Show events as they happen: rows at a terminal, lines in a log, JSON for programs.

In: events of a run. Out: a callback to give to `Fleet`. A clock of its own redraws the rows and
ends a log's silence, so that a step without events does not look dead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from fleetbuild.cli.show.board import Board, Row
from fleetbuild.cli.show.log_lines import DOING, LogLines, stamped, still_running
from fleetbuild.cli.show.output import Output
from fleetbuild.cli.show.text import duration, shortened
from fleetbuild.errors import Interrupted
from fleetbuild.models import Event, OnEvent
from fleetbuild.text import clean, count, fold

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


SILENCE = 60.0  # seconds after which a log gets a line although nothing happened
_WIDE = 100  # columns from which the time left is shown too
_LONGEST_NAME = 28
_STYLES = {"failed": "red", "done": "green"}


@contextmanager
def listening(out: Output, groups: Mapping[str, Sequence[str]] | None = None) -> Iterator[OnEvent]:
    """Yield the callback that shows a run in the way that fits where its output goes."""
    if out.json:
        yield partial(_write, out)
        return
    board = Board(groups, now=time.monotonic())
    lines = LogLines(board, failures_only=out.live, verbose=out.verbose)
    # Printing waits for the display, which waits for the board: so never print with the lock held.
    lock = threading.Lock()

    def still() -> list[str]:
        with lock:
            return still_running(board, time.monotonic())

    def drawn() -> RenderableType:
        with lock:
            return rows(board, time.monotonic(), out.console.width, out.console.height)

    log = _Log(out, still)

    def show(event: Event) -> None:
        at = time.monotonic()
        with lock:
            board.take(event, at)
            said = lines.take(event, at)
        log.say(said)

    with _redrawn(out, drawn) if out.live else log.ticking():
        try:
            yield show
        except BaseException as end:  # otherwise the summary names them next
            log.say(lines.without_end(interrupted=isinstance(end, Interrupted)))
            raise


def _write(out: Output, event: Event) -> None:
    complete = event.model_copy(update={"fix": out.hints.completed(event.fix)})
    out.text(complete.model_dump_json(exclude_none=True) + "\n")


@contextmanager
def waiting(out: Output, what: str, names: Sequence[str] = ()) -> Iterator[OnEvent]:
    """Show a short wait: who is awaited at a terminal; in a log, only that it takes long.

    Warnings are said once it is over, with `--json` too: on standard error.
    """
    wait = _Wait(what, names)
    with _shown(out, wait) as take:
        yield take
    if wait.warnings and (out.live or out.json or not out.verbose):  # a verbose log has said them
        out.warn(*wait.warnings)


@contextmanager
def _shown(out: Output, wait: _Wait) -> Iterator[OnEvent]:
    began = time.monotonic()
    if out.live:
        from rich.spinner import Spinner

        spinner = Spinner("dots")

        def drawn() -> RenderableType:
            spinner.update(text=wait.words(time.monotonic() - began))
            return spinner

        with _redrawn(out, drawn):
            yield wait.take
    elif out.json:
        yield wait.take
    else:
        log = _Log(out, lambda: [stamped(wait.words(time.monotonic() - began))])
        board = Board(now=began)
        lines = LogLines(board, verbose=True)

        def show(event: Event) -> None:
            wait.take(event)
            board.take(event, time.monotonic())
            if out.verbose:
                log.say(lines.take(event, time.monotonic()))

        with log.ticking():
            yield show


class _Wait:
    """What a wait is for, and who has answered."""

    def __init__(self, what: str, names: Sequence[str]) -> None:
        self._what, self._names = what, names
        self._answered: set[str] = set()
        self._message = ""
        self._total = 0
        self.warnings: list[str] = []

    def take(self, event: Event) -> None:
        if event.state == "warning":
            self.warnings.append(f"warning: {clean(event.message)}")
            self.warnings += [f"  fix: {clean(event.fix)}"] if event.fix else []
        elif event.node and event.state != "started":
            self._answered.add(event.node)
            self._total = event.total or self._total
        elif event.message:
            self._message = event.message

    def words(self, seconds: float) -> str:
        parts = [clean(self._what), "…"]
        if self._answered:
            of = f" of {self._total}" if self._total else ""
            parts.append(f"{len(self._answered)}{of} answered")
            missing = [name for name in self._names if name not in self._answered]
            if missing and len(missing) == self._total - len(self._answered):
                parts[-1] += f", waiting for {fold(missing, 60)}"
        elif self._message:
            parts.append(clean(self._message, limit=60))
        return f"{' '.join(parts)} ({duration(seconds)})"


class _Log:
    """Prints lines, also from a clock's thread once nothing was printed for `SILENCE` seconds."""

    def __init__(self, out: Output, still: Callable[[], list[str]]) -> None:
        self.out = out
        self._still = still
        self._lock = threading.RLock()
        self._last = time.monotonic()

    def say(self, lines: Sequence[str]) -> None:
        if lines:
            with self._lock:
                self._last = time.monotonic()
                if self.out.live:
                    self.out.console.print("\n".join(map(self.out.prose, lines)), soft_wrap=True)
                else:
                    self.out.say(*lines)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Run the clock for as long as the context lasts."""
        ended = threading.Event()
        clock = threading.Thread(target=self._tick, args=(ended,), daemon=True)
        clock.start()
        try:
            yield
        finally:
            ended.set()
            clock.join()

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(1):
            if time.monotonic() - self._last >= SILENCE:
                self.say(self._still())


@contextmanager
def _redrawn(out: Output, drawn: Callable[[], RenderableType]) -> Iterator[None]:
    """Show at a terminal what `drawn` returns, four times a second."""
    from rich.live import Live

    with Live(get_renderable=drawn, console=out.console, refresh_per_second=4, transient=True):
        yield


def rows(board: Board, now: float, width: int = 120, height: int = 0) -> Table:
    """Return a line for each group: its stage, step, time and current work."""
    from rich.table import Table

    shown, hidden = _that_fit(board.rows(), height)
    wide = width >= _WIDE
    headings = ["group", "stage", "step", "time", *(["left"] if wide else [])]
    cells = [_cells(row, now, wide=wide, width=width) for row in shown]
    room = width - sum(
        max([len(heading), *(len(line[at]) for line in cells)]) + 2
        for at, heading in enumerate(headings)
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in (*headings, ""):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "time" else "left")
    for row, line in zip(shown, cells, strict=True):
        table.add_row(*line, _last_words(row, now, room), style=_STYLES.get(row.state))
    if hidden:
        table.add_row(shortened(_summary(hidden), width))
    return table


def _last_words(row: Row, now: float, room: int) -> str:
    """Return the node and the last line of its compiler; the node is not shortened for it."""
    node, said = map(clean, row.said(now))
    if not node or not said or len(node) > room // 2:
        return shortened(": ".join(filter(None, (node, said))), room)
    return f"{node}: {shortened(said, room - len(node) - 2)}"


def _that_fit(every: list[Row], height: int) -> tuple[list[Row], list[Row]]:
    """Return the rows that a terminal of this height can show, the running ones first."""
    most = max(1, height - 3)  # without the header, the summary and the cursor's line
    if not height or len(every) <= most + 1:
        return every, []
    order = ("running", "failed", "done")
    ordered = sorted(every, key=lambda row: order.index(row.state))
    return ordered[:most], ordered[most:]


def _summary(hidden: list[Row]) -> str:
    states = [row.state for row in hidden]
    counts = (f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"and {count(len(hidden), 'group')}: {', '.join(counts)}"


def _cells(row: Row, now: float, *, wide: bool, width: int) -> list[str]:
    cells = [
        shortened(clean(row.name), min(_LONGEST_NAME, width // 3)),
        row.state if row.ended is not None else _stage(row),
        row.step(),
        _clock(row.elapsed(now)),
    ]
    if wide:
        left = row.left(now) if row.stage == "build" else None
        cells.append(f"~{duration(left)}" if left is not None else "")
    return cells


# Short forms for rows, which show the group and the node as well.
_STAGES = {
    **DOING,
    "check": "checking",
    "toolchain": "preparing",
    "activate": "switching",
    "manifests": "writing",
}


def _stage(row: Row) -> str:
    return "waiting" if row.waits else _STAGES.get(row.stage, row.stage)


def _clock(seconds: float) -> str:
    """Return a time that ticks: 0:42, 12:05, 1:50:10."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
