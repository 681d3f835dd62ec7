"""The journal: one JSON line for each start and end of a step, on disk before the next step.

In: notes of a run. Out: the builds that were left running, the nodes that were left drained, and
how long a batch of nodes took. A resumed run does not rely on the journal for finished work,
because nodes and store show it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fleetbuild.files import make_folder
from fleetbuild.models import now
from fleetbuild.state import one_line


class Journal:
    """The journal of one plan."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: int | None = None  # the highest number in this folder

    def note(self, what: str, **details: Any) -> None:
        """Append a line; return once it is on disk."""
        line = one_line({"seq": self._next(), "time": now(), "what": what, **details}) + "\n"
        descriptor = os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600
        )
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _next(self) -> int:
        """Return the next number. The order of steps must not depend on a clock, which may jump."""
        if self._last is None:
            make_folder(self._path.parent)
            self._last = max(map(_last_number, self._paths()), default=0)
        self._last += 1
        return self._last

    def left_running(self) -> dict[str, str]:
        """Return artifact keys of builds that started but did not end, with their nodes.

        All journals in this folder count: an artifact key means the same wheel in every plan.
        """
        running: dict[str, str] = {}
        for entry in self._entries("build "):
            match entry:
                case {"what": "build started", "key": str(key), "node": str(node)}:
                    running[key] = node
                case {"what": "build ended", "key": str(key), "node": str(node)}:
                    # The end on a node that failed may be noted after the start on its fallback.
                    if running.get(key) == node:
                        del running[key]
        return running

    def begun_builds(self) -> dict[str, str]:
        """Return artifact keys of builds that started and made no wheel, with their nodes.

        Unless somebody removed their folders there, a build of the same wheel goes on in them.
        """
        begun: dict[str, str] = {}
        for entry in self._entries("build "):
            match entry:
                case {"what": "build started", "key": str(key), "node": str(node)}:
                    begun[key] = node
                case {"what": "build ended", "key": str(key), "built": True}:
                    begun.pop(key, None)
        return begun

    def was_stopped(self) -> bool:
        """Return whether the last run was interrupted or killed."""
        runs = (each for each in self._entries("run ") if str(each.get("what")).startswith("run "))
        *_, last = ({}, *runs)
        return last.get("what") == "run started" or last.get("error") == "interrupted"

    def left_drained(self) -> list[str]:
        """Return nodes for which `rollout.before` ran and `rollout.after` did not."""
        drained: dict[str, None] = {}
        for entry in self._entries("drain "):
            match entry:
                case {"what": "drain started", "node": str(node)}:
                    drained[node] = None
                case {"what": "drain ended", "node": str(node)}:
                    drained.pop(node, None)
        return list(drained)

    def step_seconds(self, packages: Sequence[str]) -> dict[str, float]:
        """Return how long a batch of nodes took in the last apply of these packages, by group.

        Batches in which a node failed count only if its group has no others.
        """
        runs: list[dict[str, list[tuple[bool, float]]]] = []
        counts = False
        for entry in self._entries(""):
            match entry:
                case {"what": "run started"}:
                    counts = entry.get("packages") == list(packages)
                    runs.append({})
                case {
                    "stage": "install",
                    "group": str() as group,
                    "seconds": int() | float() as seconds,
                    "failures": int(failures),
                } if counts:
                    runs[-1].setdefault(group, []).append((failures > 0, seconds))
        last = next((run for run in reversed(runs) if run), {})
        return {
            group: mean(
                [seconds for failed, seconds in steps if not failed]
                or [seconds for _, seconds in steps]
            )
            for group, steps in last.items()
        }

    def _entries(self, word: str) -> list[dict[str, Any]]:
        """Return the entries with this word of all journals in this folder, by their numbers."""
        entries = (
            entry
            for path in self._paths()
            for line in _lines(path)
            if word in line and (entry := _entry(line))
        )
        return sorted(entries, key=_number)

    def _paths(self) -> list[str]:
        folder = str(self._path.parent)
        names = os.listdir(folder) if os.path.isdir(folder) else ()  # noqa: PTH112, PTH208
        return [f"{folder}/{name}" for name in names if name.endswith(".jsonl")]


def _number(entry: dict[str, Any]) -> int:
    number = entry.get("seq")
    return number if isinstance(number, int) else 0


def _last_number(path: str) -> int:
    """Return the highest number of a journal: its last one, because lines are only appended."""
    numbers = (_number(_entry(line)) for line in reversed(_lines(path)))
    return next(filter(None, numbers), 0)


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8", "replace").splitlines()


def _entry(line: str) -> dict[str, Any]:
    """Return the entry in a line; empty if it is damaged, as by a crash."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
