"""distribute.bandwidth: two nodes that get files at the same time share it, in real bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import fleetbuild
from fleetbuild import Config, Event
from tests.factories.files import make_wheel
from tests.lab import Lab

MEGABYTES = 6
MBIT = 8.0


def test_nodes_that_get_files_at_the_same_time_share_the_bandwidth(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab({"nodes": {name: {"hardware": "avx2"} for name in ("one", "two")}})
    data = {"large/data.bin": os.urandom(MEGABYTES << 20), "large/__init__.py": b""}
    make_wheel(tmp_path / "wheels", "small", files={"small/__init__.py": b""})
    make_wheel(tmp_path / "wheels", "large", files=data)
    times: dict[str, list[float]] = {}

    def note(event: Event) -> None:
        times.setdefault(f"{event.stage} {event.state}", []).append(time.monotonic())

    def apply(package: str, bandwidth: float | None) -> float:
        """Return how long the copies took."""
        times.clear()
        config = Config.model_validate({
            "index": [str(tmp_path / "wheels")], "build": {"policy": "published"},
            "rollout": {"canary": 0, "serial": "100%"}, "distribute": {"bandwidth": bandwidth},
        })  # fmt: skip
        fleet = fleetbuild.Fleet(lab.inventory, config=config, state_dir=tmp_path / "state")
        result = fleet.apply(fleet.plan([package]), on_event=note)
        assert result.exit_code == 0, result
        return max(times["distribute ok"]) - min(times["install started"])

    apply("small==1.0", None)  # which brings uv, too
    limited = apply("large==1.0", MBIT)
    assert limited > 0.9 * 2 * MEGABYTES * 8 * 1.048 / MBIT
