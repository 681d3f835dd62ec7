"""Text that is fit to show: what a node says is not trusted, and lists of names are long."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

# Escape sequences first, as a whole: CSI (colours, cursor), OSC (titles, links), then the rest.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.?")
# Controls, formats such as turning the line around, surrogates, private use, line separators.
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_NUMBERED = re.compile(r"^(.*?)([0-9]{1,9})([^0-9]*)$", re.DOTALL)


def count(number: int, noun: str) -> str:
    """1 node, 2 nodes, 3 canaries."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"


def version_key(version: str) -> tuple[int, ...]:
    """A key that sorts versions as numbers: 2.4, 2.28, 550.54.15; text without any is first."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version, re.ASCII))


def clean(text: object, *, limit: int = 2000) -> str:
    """The text without control characters: no node moves the cursor or turns the line around."""
    plain = _ESCAPES.sub("", str(text)[: limit * 2])
    kept = "".join(
        " " if char in "\t\r\n" else char
        for char in plain
        if char in "\t\r\n" or unicodedata.category(char) not in HIDDEN
    )
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def fold(names: Iterable[str]) -> str:
    """Names as people of clusters write them: gpu-[07-09,12], login."""
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
