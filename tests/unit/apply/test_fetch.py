"""Fetching is stopped where it is."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetbuild.apply.context import Progress
from fleetbuild.apply.fetch import fetch
from fleetbuild.models import LockedFile
from tests.factories.fleets import facts, locked
from tests.factories.runs import FakeFleet, FakeStore, group, plan

FILES = tuple(locked(f"file{number}") for number in range(20))
GROUP = group("avx", ["avx-1"]).model_copy(update={"dependencies": FILES})


@dataclass
class Slow(FakeStore):
    """Downloads that would go on for a minute; when the second has on_start, Ctrl-C is pressed."""

    ended: list[str] = field(default_factory=list)
    on_start: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    second: threading.Event = field(default_factory=threading.Event)

    def fetch(self, file: LockedFile, check_cancelled: Callable[[], None]) -> Path:
        self.on_start.append(file.name)
        if file.name == "file0":
            assert self.second.wait(10)
            raise KeyboardInterrupt
        self.second.set()
        try:
            for _ in range(600):
                time.sleep(0.1)
                check_cancelled()
            self.ended.append(file.name)
        finally:
            self.stopped.append(file.name)
        return self.folder


def test_ctrl_c_stops_running_downloads(tmp_path: Path) -> None:
    store = Slow(tmp_path)
    run = FakeFleet(facts={"avx-1": facts("avx")}, store=store).run(plan(GROUP), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fetch(run, Progress())
    assert store.ended == []
    assert sorted([*store.stopped, "file0"]) == sorted(store.on_start)
    assert len(store.on_start) < len(FILES)
