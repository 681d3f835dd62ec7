"""Output streams: text for people, documents for programs on standard output, errors on stderr."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from fleetbuild.cli.hints import of_this_run
from fleetbuild.cli.show.text import wrapped
from fleetbuild.errors import FleetbuildError
from fleetbuild.text import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


LONGEST = 20_000
UNLIMITED = 10_000
USUAL = 100  # columns


class Output:
    """Two channels. With `json`, standard output is for programs, and people read stderr."""

    def __init__(self, *, json: bool = False, verbose: bool = False, color: bool = True) -> None:
        self.json = json
        self.verbose = verbose
        self.color = color
        self.written = False  # whether standard output has a document or an event
        self.hints = of_this_run()

    @property
    def _people(self) -> TextIO:
        return sys.stderr if self.json else sys.stdout

    @cached_property
    def console(self) -> Console:
        """The rich console for people. It does not interpret markup."""
        from rich.console import Console

        console = Console(
            file=cast(IO[str], Unbreakable(self._people)),
            no_color=None if self.color else True,
            markup=False,
            highlight=False,
            emoji=False,
        )
        if not console.is_terminal:
            console.width = UNLIMITED
        return console

    @property
    def columns(self) -> int:
        """How wide a table may be. Without a terminal, COLUMNS says it."""
        if self.console.is_terminal:
            return self.console.width
        given = os.environ.get("COLUMNS", "")
        return int(given) if given.isdecimal() else USUAL

    @property
    def live(self) -> bool:
        """Whether the output is a terminal that can redraw lines."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def say(self, *lines: str) -> None:
        """Write lines for people; their commands are complete."""
        self._write(self._people, lines)

    def _write(self, stream: TextIO, lines: Iterable[str]) -> None:
        width = self.columns if stream.isatty() else UNLIMITED
        Unbreakable(stream).write("".join(self.prose(line, width) + "\n" for line in lines))

    def prose(self, line: str, width: int = 0) -> str:
        """Return a line with complete commands, without control characters, broken at words."""
        text = clean(self.hints.completed(line), limit=LONGEST)
        return wrapped(text, width or self.columns)

    def show(self, renderable: RenderableType) -> None:
        """Write a table for people. Without a terminal, lines are neither padded nor cut."""
        from rich.table import Table
        from rich.text import Text

        if self.console.is_terminal:
            if isinstance(renderable, Text):
                self.console.print(_wrapped(renderable, self.columns), soft_wrap=True)
                return
            if isinstance(renderable, Table) and not fits(renderable, self.columns):
                renderable = _narrowed(renderable, self.columns)
            self.console.print(renderable)
            return
        with self.console.capture() as captured:
            self.console.print(renderable)
        self.say(*(line.rstrip() for line in captured.get().splitlines()))

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the JSON document of a command to standard output, with the version of our format.

        A document in a format of others names its schema.
        """
        version = {} if "$schema" in document else {"format_version": "1.0"}
        whole = version | self._with_commands(document)
        text = json.dumps(whole, indent=2, ensure_ascii=False)
        self.text(text + "\n")

    def _with_commands(self, value: Any) -> Any:
        """Return a document in which the commands of each fix are complete."""
        if isinstance(value, dict):
            return {
                name: self.hints.completed(each)
                if name == "fix" and isinstance(each, str)
                else self._with_commands(each)
                for name, each in value.items()
            }
        return list(map(self._with_commands, value)) if isinstance(value, list) else value

    def text(self, text: str) -> None:
        """Write text for programs to standard output, unchanged."""
        self.written = True
        Unbreakable(sys.stdout).write(text)

    def error(self, error: FleetbuildError) -> None:
        """Write an error and its fix to stderr."""
        self.warn(f"error: {error.message}")
        if error.fix:
            self.warn(f"fix: {error.fix}")

    def warn(self, *lines: str) -> None:
        """Write lines to stderr. What a stranger chose makes no line of its own."""
        self._write(sys.stderr, lines)

    def ask(self, question: str) -> bool:
        """Ask a yes-or-no question at the terminal."""
        stream = Unbreakable(self._people)
        stream.write(f"{question} [y/N] ")
        stream.flush()
        try:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
        except OSError:  # the terminal is closed
            return False


def _wrapped(text: Text, width: int) -> Text:
    """Return lines broken between words, each in its own style."""
    from rich.text import Text

    lines = ((line.plain, line.spans) for line in text.split("\n"))
    return Text("\n").join(
        Text(wrapped(plain, width), spans[0].style if spans else "") for plain, spans in lines
    )


def fits(table: Table, width: int) -> bool:
    """Return whether a table needs no line breaks in cells at this width."""
    from rich.console import Console
    from rich.measure import Measurement

    boundless = Console(width=UNLIMITED, height=1)  # with one of them, a dumb terminal has 80
    return Measurement.get(boundless, boundless.options, table).maximum <= width


def _narrowed(table: Table, width: int) -> RenderableType:
    """Return the table with lines broken between words; if words do not fit, lines for each row.

    Rich makes the widest columns narrower first, and so breaks words though others have room.
    """
    from rich.cells import cell_len

    sizes = []
    for column in table.columns:
        texts = [str(text) for text in (column.header, *column.cells)]
        longest = max(cell_len(line) for text in texts for line in text.split("\n"))
        word = max(cell_len(word) for text in texts for word in text.split() or [""])
        sizes.append((longest if column.no_wrap else word, longest, column))
    room = width - 2 * (len(sizes) - 1) - sum(least for least, _, _ in sizes)
    if room < 0:
        return _as_lines(table)
    sizes.sort(key=lambda size: size[1] - size[0])
    for number, (least, longest, column) in enumerate(sizes):
        more = min(longest - least, room // (len(sizes) - number))
        column.width, room = least + more, room - more
    return table


def _as_lines(table: Table) -> RenderableType:
    """Return a row's first cell as a line, and below it the others with their headings."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    headings = [str(column.header) for column in table.columns]
    lines: list[RenderableType] = []
    rows = zip(*(column.cells for column in table.columns), strict=True)
    for row, cells in zip(table.rows, rows, strict=True):
        first, *rest = map(str, cells)
        named = zip(headings[1:], rest, strict=True)
        known = [f"{heading} {cell}".strip() for heading, cell in named if cell not in ("", "-")]
        about = "; ".join(known)
        style = row.style or ""
        lines += [Text(first, style), Padding(Text(about, style), (0, 0, 0, 2))]
    return Group(*lines)


# The reader of a pipe is gone; the terminal is closed.
_NOBODY_READS = (errno.EPIPE, errno.EIO)


class Unbreakable:
    """A stream that drops its output once nobody reads it.

    `| head`, or a terminal that closes, must not stop a run or hide how it ends.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        try:
            written = self._stream.write(_encodable(text, self.encoding))
            self._stream.flush()  # a program, or a log, follows the run through a pipe
            return written
        except OSError as error:
            self._to_nowhere(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._to_nowhere(error)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _to_nowhere(self, error: OSError) -> None:
        # The descriptor itself, so that the interpreter's own flush at exit is quiet too, and
        # leaves the exit code.
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())
        if error.errno not in _NOBODY_READS:
            error.filename = "standard output"  # for the message; an open file has no name
            raise error


def _encodable(text: str, encoding: str | None) -> str:
    # A C locale cannot write "·" or a node's odd name; a question mark is better than a crash.
    encoding = encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
