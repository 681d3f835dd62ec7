"""distribute.peer_port: nodes give files to each other, in real bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import fleetbuild
from fleetbuild import Config, Event
from tests.factories.files import make_wheel
from tests.lab import Lab

LARGE = 24 << 20
PORT = 47100
# The second node's files arrive where root uses them, the third one's by a copy on the node. The
# fourth node cannot listen at the port.
ROOT = {"ansible_user": "root"}
BECOME = {"ansible_become": True}
OCCUPIED = f"nohup python3 -m http.server {PORT} >/dev/null 2>&1 &"


def test_the_controller_sends_a_file_once(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab({
        "nodes": {
            "n1": {"hardware": "avx2"},
            "n2": {"hardware": "avx2", "vars": ROOT},
            "n3": {"hardware": "avx2", "vars": BECOME},
            "busy": {"hardware": "avx2", "setup": OCCUPIED},
        }
    })  # fmt: skip
    for package in ("large", "next"):
        data = {f"{package}/data.bin": os.urandom(LARGE), f"{package}/__init__.py": b""}
        make_wheel(tmp_path / "wheels", package, files=data)
    config = Config.model_validate({
        "index": [str(tmp_path / "wheels")], "build": {"policy": "published"},
        "rollout": {"canary": 0, "serial": "100%"}, "distribute": {"peer_port": PORT},
    })  # fmt: skip
    events: list[Event] = []
    fleet = fleetbuild.Fleet(
        lab.inventory, config=config, state_dir=tmp_path / "state", on_event=events.append
    )
    for package in ("large", "next"):  # the servers of the first run would stay for 30 s
        events.clear()
        result = fleet.apply(fleet.plan([f"{package}==1.0"]))
        assert result.exit_code == 0, result
        for name in lab.nodes:
            code = f"/opt/fleetbuild/current/bin/python -c 'import {package}'"
            lab.exec(name, code, check=True)
        assert "pip installed the wheels" not in "".join(event.message for event in events)
        sent = [event for event in events if event.stage == "distribute"]
        from_nodes = {event.node for event in sent if event.message.startswith("from n")}
        warnings = {event.message for event in sent} - {""}
        # The first of them comes from this machine. A node may get it from any that has it.
        assert len(from_nodes) == 2, warnings
        assert f"busy uses port {PORT} (distribute.peer_port) for something else" in "".join(
            warnings
        )
        assert {event.node for event in sent} == set(lab.nodes)
    left = "ls -A /home/fleet/.ansible/tmp /opt/fleetbuild/.incoming 2>/dev/null"
    assert all("-tmp-" not in lab.exec(name, left, check=False).stdout for name in lab.nodes)
