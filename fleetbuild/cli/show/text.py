"""Text to show: cleaned of control characters, with long lists of names folded."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from fleetbuild.cli.hints import of_this_run
from fleetbuild.text import age, clean, fold, natural_order

# What happened to a node, why, what to do, and the log that says more.
Trouble = tuple[str, str | None, str | None] | tuple[str, str | None, str | None, str | None]


def troubles(nodes: Mapping[str, Trouble]) -> list[str]:
    """Return lines for each trouble, with all nodes that share it.

    Sentences that differ only in the node's own name are one trouble: it names the nodes itself, so
    they are not listed before it. Further lines of a reason, such as a traceback, stay lines.
    """
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    logs: dict[str, str] = {}
    for name, (what, why, fix, *log) in nodes.items():
        key = (what, _without_name(why, name), _without_name(fix, name))
        alike.setdefault(key, []).append(name)
        if log and log[0]:
            logs[name] = log[0]
    lines = []
    for (what, why, fix), names in alike.items():
        first, *rest = (why or "").strip().splitlines() or [""]
        has_names = _NAME in first and 1 < len(names) <= _MOST_NAMES
        who = "" if has_names else fold(names)
        if first.startswith(_SAYS):
            verb = "says" if len(names) == 1 else "say"
            who, first = f"{fold(names)} {verb}", first.removeprefix(_SAYS)
        parts = (what, who, clean(_with_names(first, names, ", ")))
        lines.append(": ".join(filter(None, parts)))
        lines += quoted(_with_names(line, names, ", ") for line in rest)
        if fix and (line := f"  fix: {clean(_with_names(fix, names))}") not in lines:
            lines.append(line)
        named = dict.fromkeys(logs[name] for name in names if name in logs)
        lines += [f"  log: {clean(log)}" for log in list(named)[:_MOST_LOGS]]
    return lines


def with_short_symbols(text: str) -> str:
    """Return text with the symbols in backticks cut to 60 characters: mangled ones fill lines."""
    return re.sub(r"`([^`\s]{59})[^`\s]{2,}`", r"`\1…`", text)


def quoted(lines: Iterable[str]) -> list[str]:
    """Return lines that a program printed, marked as such."""
    return [f"  | {clean(line)}" for line in lines]


_MOST_NAMES = 20
_MOST_LOGS = 3
_NAME = "\0"  # stands for the node's own name; cleaned text does not contain it
_SAYS = f"{_NAME} says: "  # how a node's own words begin


def _without_name(text: str | None, name: str) -> str | None:
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", _NAME, text) if text else text


def _with_names(text: str, names: Sequence[str], comma: str = ",") -> str:
    """Put the names back; NODE if there are too many. In a fix, Ansible's --limit takes them."""
    return text.replace(
        _NAME, comma.join(sorted(names, key=natural_order)) if len(names) <= _MOST_NAMES else "NODE"
    )


def shortened(text: str, room: int) -> str:
    """Return text that fits, with its middle left out: a path's end says more than its start."""
    if len(text) <= room:
        return text
    if room < 12:
        return text[: max(0, room - 1)] + "…"[: max(0, room)]
    head = room // 3
    return f"{text[:head]}…{text[head + 1 - room :]}"


def advice(fix: str | None) -> str:
    """Return what to do, with complete commands, for a cell of a table."""
    return clean(of_this_run().completed(fix or ""))


def wrapped(line: str, width: int) -> str:
    """Return a line broken between words. What a reader may paste, or a program said, stays whole.

    A command is one to paste after a colon, or between backticks.
    """
    if len(line) <= width or line.startswith("  | "):
        return line
    whole = [command[0].replace(" ", _GLUE) for command in _PASTED.finditer(line)]
    glued = _PASTED.sub(lambda _: whole.pop(0), line)
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    broken = textwrap.fill(glued, width, subsequent_indent=indent, break_long_words=False,
                           break_on_hyphens=False)  # fmt: skip
    return broken.replace(_GLUE, " ")


_GLUE = "\0"
# fleetbuild's own, one between backticks, and one of a program with options or paths.
_PASTED = re.compile(
    r"`[^`]+`|\bfleetbuild [a-z][^`;()]*?(?=[,.]?(?:  |$|[;)`]|, |\. ))"
    r"|(?<=: )(?:[a-z][\w-]+)(?: (?:-\S*|\S*[/=]\S*|sudo|rm))+"
)


def duration(seconds: float) -> str:
    """Return a duration: 1.6 s, 42 s, 3 min 05, 1 h 50."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d}"


def ago(moment: str) -> str:
    """Return how long ago an ISO 8601 time was."""
    return age((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def size(number: float) -> str:
    """Return a number of bytes: 812 B, 4.1 kB, 1.2 GB."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
