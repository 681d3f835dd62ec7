"""Text to show: cleaned of control characters, with long lists of names folded."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fleetbuild.text import count

# Escape sequences first, as a whole: CSI (colours, cursor), OSC (titles, links), then the rest.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.?")
# Controls, formats such as turning the line around, surrogates, private use, line separators.
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_NUMBERED = re.compile(r"^(.*?)([0-9]{1,9})([^0-9]*)$", re.DOTALL)


def clean(text: object, *, limit: int = 2000) -> str:
    """Return text without control characters: nodes must not move the cursor or reverse a line."""
    plain = _ESCAPES.sub("", str(text)[: limit * 2])
    kept = "".join(
        " " if char in "\t\r\n" else char
        for char in plain
        if char in "\t\r\n" or unicodedata.category(char) not in HIDDEN
    )
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def fold(names: Iterable[str]) -> str:
    """Return names as cluster tools write them: gpu-[07-09,12], login."""
    numbered: dict[tuple[str, int, str], set[int]] = {}
    folded: dict[str, None] = {}
    for name in sorted(set(names)):
        match = _NUMBERED.match(name)
        if match is None:
            folded[clean(name)] = None
            continue
        head, digits, tail = match.groups()
        numbered.setdefault((head, len(digits), tail), set()).add(int(digits))
    for (head, width, tail), numbers in _merge_widths(numbered).items():
        folded[clean(f"{head}{_ranges(sorted(numbers), width)}{tail}")] = None
    return ", ".join(sorted(folded))


def _merge_widths(
    numbered: Mapping[tuple[str, int, str], set[int]],
) -> dict[tuple[str, int, str], set[int]]:
    # node-07 is not node-7: padded numbers keep their width. n9 and n10 belong together.
    merged: dict[tuple[str, int, str], set[int]] = {}
    for (head, width, tail), numbers in numbered.items():
        padded = any(len(str(number)) < width for number in numbers)
        merged.setdefault((head, width if padded else 1, tail), set()).update(numbers)
    return merged


def _ranges(numbers: list[int], width: int) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        f"{run[0]:0{width}d}" if len(run) == 1 else f"{run[0]:0{width}d}-{run[-1]:0{width}d}"
        for run in runs
    ]
    return parts[0] if len(numbers) == 1 else f"[{','.join(parts)}]"


def troubles(nodes: Mapping[str, tuple[str, str | None, str | None]]) -> list[str]:
    """Return lines for each trouble (what, why, fix), with all nodes that share it.

    Sentences that differ only in the node's own name are one trouble. Further lines of a reason,
    such as a traceback, stay lines.
    """
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for name, (what, why, fix) in nodes.items():
        alike.setdefault((what, _without_name(why, name), _without_name(fix, name)), []).append(
            name
        )
    lines = []
    for (what, why, fix), names in alike.items():
        first, *rest = _with_names(why or "", names).strip().splitlines() or [""]
        lines.append(": ".join([what, fold(names), *([clean(first)] if first else [])]))
        lines += quoted(rest)
        if fix:
            lines.append(f"  fix: {clean(_with_names(fix, names))}")
    return lines


def quoted(lines: Iterable[str]) -> list[str]:
    """Return lines that a program printed, marked as such."""
    return [f"  | {clean(line)}" for line in lines]


_NAME = "\0"  # stands for the node's own name; cleaned text does not contain it


def _without_name(text: str | None, name: str) -> str | None:
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", _NAME, text) if text else text


def _with_names(text: str, names: Sequence[str]) -> str:
    """Put the names back, as Ansible's --limit takes them."""
    return text.replace(_NAME, ",".join(names))


def state_option(state_dir: Path) -> str:
    """Return the option that names this state directory, if a command needs it."""
    return "" if state_dir == Path(".fleetbuild") else f" --state-dir {state_dir}"


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


def age(seconds: float) -> str:
    """Return an age: just now, 5 minutes ago, 3 days ago."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{count(int(seconds // size), noun)} ago"
    return "just now"


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
