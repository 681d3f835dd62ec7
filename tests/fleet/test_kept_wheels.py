"""An upgrade of one of two packages sends that one's wheel alone, in real bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import fleetbuild
from fleetbuild import Config
from tests.factories.files import make_wheel
from tests.lab import Lab

LARGE = 12 << 20
OTHER = 4 << 20  # what else a run sends at most, which is mostly modules


def test_an_upgrade_sends_the_changed_wheel_alone(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab({"nodes": {"n1": {"hardware": "avx2"}}})
    data = {"large/data.bin": os.urandom(LARGE), "large/__init__.py": b""}
    make_wheel(tmp_path / "wheels", "large", files=data)
    for version in ("1.0", "2.0", "3.0"):
        text = f"version = {version!r}".encode()
        make_wheel(tmp_path / "wheels", "small", version, files={"small/__init__.py": text})
    config = Config.model_validate(
        {"index": [str(tmp_path / "wheels")], "build": {"policy": "published"}}
    )

    def on_node(command: str) -> str:
        return lab.exec("n1", command, check=True).stdout.strip()

    def received(version: str) -> int:
        """Apply; return the bytes that the node received."""
        counter = "cat /sys/class/net/eth0/statistics/rx_bytes"
        before = int(on_node(counter))
        fleet = fleetbuild.Fleet(lab.inventory, config=config, state_dir=tmp_path / "state")
        result = fleet.apply(fleet.plan(["large==1.0", f"small=={version}"]))
        assert result.exit_code == 0, result
        imports = "import large, small; print(small.version)"
        assert on_node(f"/opt/fleetbuild/current/bin/python -c '{imports}'") == version
        found = int(on_node(counter)) - before
        print(f"small {version}: {found / 1e6:.1f} MB")  # noqa: T201 (for docs/benchmarks.md)
        return found

    assert received("1.0") > LARGE
    assert received("2.0") < OTHER
    on_node("find /opt/fleetbuild/.wheels -type f -size +1M -exec truncate -s -1 {} +")
    assert received("3.0") > LARGE  # damaged, so it is sent again
