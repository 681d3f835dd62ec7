"""An upgrade over a slow link sends a patch to the node that has zstd, in real bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Config, Event
from tests.factories.files import make_wheel
from tests.lab import Lab

LARGE = 12 << 20
OTHER = 4 << 20  # what else a run sends at most, which is mostly modules
NODES = ("one", "two", "bare")
BROKEN = """#!/bin/sh
[ "$*" = --version ] && echo '*** Zstandard CLI (64-bit) v1.5.7, by Yann Collet ***'
"""
pytestmark = pytest.mark.skipif(not shutil.which("zstd"), reason="no zstd")


def test_an_upgrade_sends_a_patch_where_zstd_is(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    program = shutil.which("zstd")
    zstd = {"volumes": [f"{program}:/usr/local/bin/zstd:ro"]}
    nodes = {name: {"hardware": "avx2", **zstd} for name in NODES[:2]}
    lab = make_lab({"nodes": {**nodes, "bare": {"hardware": "avx2"}}})
    if lab.exec("one", "zstd --version").returncode:
        pytest.skip("the nodes do not run this machine's zstd")
    data = os.urandom(LARGE)
    for version in ("1.0", "2.0", "3.0"):
        text = f"version = {version!r}".encode()
        data = text + data[:-100]  # moves, and ends elsewhere
        files = {"large/data.bin": data, "large/__init__.py": text}
        make_wheel(tmp_path / "wheels", "large", version, files=files)
    config = Config.model_validate({
        "index": [str(tmp_path / "wheels")], "build": {"policy": "published"},
        "distribute": {"bandwidth": 40}, "rollout": {"canary": 0},
    })  # fmt: skip
    told: list[Event] = []

    def on_node(name: str, command: str) -> str:
        return lab.exec(name, command, check=True).stdout.strip()

    def count() -> list[int]:
        counter = "cat /sys/class/net/eth0/statistics/rx_bytes"
        return [int(on_node(name, counter)) for name in NODES]

    def received(version: str) -> list[int]:
        """Apply; return the bytes that each node received."""
        told.clear()
        before = count()
        fleet = fleetbuild.Fleet(
            lab.inventory, config=config, state_dir=tmp_path / "state", on_event=told.append
        )
        result = fleet.apply(fleet.plan([f"large=={version}"]))
        assert result.exit_code == 0, result
        for name in NODES:
            imports = "import large; print(large.version)"
            assert on_node(name, f"/opt/fleetbuild/current/bin/python -c '{imports}'") == version
            assert on_node(name, "ls -A /opt/fleetbuild | grep -E 'incoming|wheels'") == ".wheels"
        found = [after - then for after, then in zip(count(), before, strict=True)]
        print(f"{version}: {', '.join(f'{each / 1e6:.1f}' for each in found)} MB")  # noqa: T201 (for docs/benchmarks.md)
        return found

    assert min(received("1.0")) > LARGE
    one, two, bare = received("2.0")
    assert max(one, two) < OTHER
    assert bare > LARGE
    arrivals = {
        each.node: each.message for each in told if each.stage == "distribute" and each.node
    }
    assert all(arrivals[name].endswith("1 as a patch") for name in NODES[:2])
    assert not arrivals["bare"].endswith("patch")
    # A wheel that was made from a patch is kept, and is a source; a damaged one is not.
    on_node("two", "truncate -s -1 $(find /opt/fleetbuild/.wheels -type f -size +1M)")
    on_node(
        "bare", f"cat > /usr/local/bin/zstd <<'EOF'\n{BROKEN}EOF\nchmod 755 /usr/local/bin/zstd"
    )
    one, two, bare = received("3.0")
    assert one < OTHER
    assert min(two, bare) > LARGE
    assert [each.node for each in told if each.message.endswith("It is sent again, whole")] == [
        "bare"
    ]
