"""What a run has begun and ended, a JSON line each, on disk before the next step starts.

A resumed run does not believe the journal about what is done: the nodes and the store say that
themselves. It asks only what they cannot say, such as where a build was left running.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetbuild.models import now
from fleetbuild.state.directory import one_line


class Journal:
    """The journal of one plan."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str, **details: Any) -> None:
        """Append a line, and return when it is on disk."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = one_line({"time": now(), "what": what, **details}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def left_running(self) -> dict[str, str]:
        """Artifact keys of builds that began and did not end, and the nodes they run on.

        All journals beside this one count: what is built is the same whichever plan wants it.
        """
        running: dict[str, str] = {}
        everything = [line for path in self._path.parent.glob("*.jsonl") for line in _lines(path)]
        # Within a millisecond, and across files, an end comes after its beginning.
        in_time = sorted(
            everything, key=lambda line: (str(line.get("time")), line.get("what") == "build ended")
        )
        for entry in in_time:
            match entry:
                case {"what": "build started", "key": str(key), "node": str(node)}:
                    running[key] = node
                case {"what": "build ended", "key": str(key)}:
                    running.pop(key, None)
        return running


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """All that was noted in a journal; a line torn by a crash is passed over."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry
