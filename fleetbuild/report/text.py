"""Small things that make text fit to show: what a node says is not trusted, and lists are long."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from fleetbuild.text import HIDDEN, clean, count, fold

__all__ = [
    "HIDDEN",
    "age",
    "ago",
    "clean",
    "duration",
    "fold",
    "size",
    "state_option",
    "troubles",
]


def troubles(nodes: Mapping[str, tuple[str, str | None, str | None]]) -> list[str]:
    """A line for each trouble (what, why, fix) with everyone who is in it, and its fix below."""
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for name, trouble in nodes.items():
        alike.setdefault(trouble, []).append(name)
    lines = []
    for (what, why, fix), names in alike.items():
        lines.append(": ".join([what, fold(names), *([clean(why)] if why else [])]))
        if fix:
            lines.append(f"  fix: {clean(fix)}")
    return lines


def state_option(state_dir: Path) -> str:
    """What a command needs to find this state directory again."""
    return "" if state_dir == Path(".fleetbuild") else f" --state-dir {state_dir}"


def duration(seconds: float) -> str:
    """A length of time as one would say it: 1.6 s, 42 s, 3 min 05, 1 h 50."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d}"


def age(seconds: float) -> str:
    """How long ago: just now, 5 minutes ago, 3 days ago."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{count(int(seconds // size), noun)} ago"
    return "just now"


def ago(moment: str) -> str:
    """How long ago a moment of ISO 8601 is now."""
    return age((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def size(number: float) -> str:
    """A number of bytes: 812 B, 4.1 kB, 1.2 GB."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
