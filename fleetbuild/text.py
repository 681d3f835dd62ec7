"""Clean and shorten text for display: text from nodes is untrusted, and lists of names are long."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

# Escape sequences first, as a whole: CSI (colours, cursor), OSC (titles, links), then the rest.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.?")
# Controls, formats such as turning the line around, surrogates, private use, line separators.
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_LONGEST = 1000  # characters of a sentence about a package, which may quote a name of megabytes
_DIGITS = re.compile(r"([0-9]{1,9})")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 node, 2 nodes, 3 canaries."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"


def age(seconds: float) -> str:
    """Return an age: just now, 5 minutes ago, 3 days ago."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{count(int(seconds // size), noun)} ago"
    return "just now"


@lru_cache(maxsize=10_000)  # a plan compares the same few versions for each node
def version_key(version: str) -> tuple[int, ...]:
    """Return a key that sorts versions as numbers: 2.4 before 2.28, text without digits first."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version, re.ASCII))


def is_nested_deeply(text: str, limit: int = 100) -> bool:
    """Return whether more brackets than this are open at once: YAML readers take their square."""
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > limit:
            return True
    return False


def yaml_mistake(problem: Exception) -> str:
    """Return where a YAML text is wrong and why: " in line 2, column 3: found a tab".

    PyYAML's own text names a string that was parsed "<unicode string>", and quotes it.
    """
    mark = getattr(problem, "problem_mark", None) or getattr(problem, "context_mark", None)
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    why = getattr(problem, "problem", None) or getattr(problem, "context", None)
    first, _, _ = str(problem).partition("\n")
    return f"{where}: {why or first}"


def yaml_value(value: object, limit: int = 200) -> str:
    """Return a value as YAML on one line, for a message; a text is in quotation marks."""
    if isinstance(value, str):
        return repr(value)
    import yaml  # noqa: PLC0415 (only where something is wrong)

    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=2 * limit, allow_unicode=True
    )
    return clean(" ".join(text.removesuffix("...\n").split()), limit=limit)


def clean(text: object, *, limit: int = 2000) -> str:
    """Return text without control characters: nodes must not move the cursor or reverse a line."""
    plain = _ESCAPES.sub("", str(text)[: limit * 2])
    kept = "".join(
        " " if char in "\t\r\n" else char
        for char in plain
        if char in "\t\r\n" or unicodedata.category(char) not in HIDDEN
    ).replace("##[", "# #[")  # a command to GitHub's runner, wherever it is in a line
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def first_few(problems: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the first sentences, each of a readable length, and how many more there are."""
    found = tuple(problems)
    more = (f"and {len(found) - most} more problems",) if len(found) > most else ()
    return (*(clean(each, limit=_LONGEST) for each in found[:most]), *more)


def named_path(path: str) -> str:
    """Return a path for a sentence: in quotation marks, unless it is one plain word.

    A node may have chosen it; a reader must see where it ends and fleetbuild's words go on.
    """
    return path if re.fullmatch(r"[\w./:\\+@~-]+", path) else json.dumps(path, ensure_ascii=False)


def fold(names: Iterable[str], limit: int | None = 300) -> str:
    """Return names as cluster tools write them: gpu-[07-09,12], login.

    Names beyond the limit are counted: "n[1-9] and 3 more".
    """
    unique = sorted(set(names), key=natural_order)
    whole = _folded(unique)
    if limit is None or len(whole) <= limit:
        return whole
    shown = max(1, bisect(range(len(unique)), limit, key=lambda n: len(_folded(unique[:n]))) - 1)
    return f"{_folded(unique[:shown])} and {len(unique) - shown} more"


def natural_order(name: str) -> tuple[object, ...]:
    """Return a sort key that puts n9 before n10."""
    parts = _DIGITS.split(name)
    return tuple(
        part if number % 2 == 0 else (int(part), part) for number, part in enumerate(parts)
    )


def _folded(names: Sequence[str]) -> str:
    """Return all names; names that differ in only one number are joined."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for name in names:
        parts = _DIGITS.split(name)
        alike.setdefault(tuple(parts[::2]), []).append(parts)
    folded: list[str] = []
    for several in alike.values():
        folded += _fold_alike(several)
    return ", ".join(sorted(folded))


def _fold_alike(several: list[list[str]]) -> Iterator[str]:
    """Fold names with the same text between their numbers, at the last number that varies."""
    numbers = range(1, len(several[0]), 2)
    varying = [at for at in numbers if len({parts[at] for parts in several}) > 1]
    if not varying:
        yield clean("".join(several[0]))
        return
    at = varying[-1]
    numbered: dict[tuple[str, int, str], set[int]] = {}
    for parts in several:
        head, tail = "".join(parts[:at]), "".join(parts[at + 1 :])
        numbered.setdefault((head, len(parts[at]), tail), set()).add(int(parts[at]))
    for (head, width, tail), found in _merge_widths(numbered).items():
        yield clean(f"{head}{_ranges(sorted(found), width)}{tail}")


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
