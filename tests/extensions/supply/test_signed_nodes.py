"""Nodes that accept only signed releases, through plan, apply and rollback on real nodes.

Node `one` has a file of allowed signers, node `two` has not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild import BlockedError, Plan, Result
from fleetbuild.config import config_model
from tests.factories.files import make_wheel
from tests.lab import Lab

NODES = ("one", "two")


class Fleet:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.inventory = fleetbuild.read_inventory(lab.inventory)
        for version in ("1.0", "2.0", "3.0"):
            make_wheel(folder / "wheels", "tiny", version, files={"tiny.py": version.encode()})

    def key(self, name: str) -> Path:
        file = self.folder / name
        if not file.exists():
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file)]
            subprocess.run(made, check=True)
        return file

    def allow(self, *names: str) -> None:
        keys = [self.key(name).with_suffix(".pub").read_text().strip() for name in names]
        lines = "".join(f"ops@example.org {key}\n" for key in keys)
        command = (
            f"mkdir -p /etc/fleetbuild && cat >/etc/fleetbuild/allowed_signers <<'E'\n{lines}E"
        )
        self.lab.exec("one", command, check=True)

    def open(self, key: str | None) -> fleetbuild.Fleet:
        settings: dict[str, Any] = {
            "rollout": {"canary": 0, "serial": "100%", "max_fail": "50%"},
            "index": [str(self.folder / "wheels")],
            "build": {"policy": "published"},
        }
        if key:
            settings["signing"] = {"key": str(self.key(key))}
        config = config_model().model_validate(settings).within(str(self.folder))
        return fleetbuild.Fleet(self.inventory, config=config, state_dir=self.folder / "state")

    def plan(self, version: str, key: str | None = "operator") -> Plan:
        return self.open(key).plan([f"tiny=={version}"])

    def serving(self) -> list[str]:
        link = "readlink /opt/fleetbuild/current"
        return [self.lab.exec(n, link).stdout.strip().rpartition("/")[2] for n in NODES]


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    lab = make_lab({"nodes": {name: {"hardware": "avx2", "gpu": False} for name in NODES}})
    fleet = Fleet(lab, tmp_path_factory.mktemp("signed"))
    fleet.allow("operator")
    return fleet


def states(result: Result) -> dict[str, str]:
    return {node.node: node.state for node in result.nodes}


def reason(result: Result, name: str) -> str:
    return next(f"{node.reason} {node.fix}" for node in result.nodes if node.node == name)


def release_of(plan: Plan) -> str:
    (group,) = plan.groups
    return str(group.release_id)


def test_a_plan_without_a_key_blocks_the_node_that_needs_one(fleet: Fleet) -> None:
    plan = fleet.plan("1.0", key=None)
    assert (plan.nodes["one"].state, plan.nodes["two"].state) == ("blocked", "ok")
    assert "accepts only signed releases" in str(plan.nodes["one"].reason)
    assert "signing.key" in str(plan.nodes["one"].fix)


def test_only_a_release_with_a_good_signature_is_switched_to(fleet: Fleet) -> None:
    first = fleet.plan("1.0")
    result = fleet.open("operator").apply(first)
    assert states(result) == dict.fromkeys(NODES, "installed"), result
    v1 = release_of(first)
    second = fleet.plan("2.0")
    v2 = release_of(second)

    with pytest.raises(BlockedError, match="Only signed releases are accepted by one"):
        fleet.open(None).apply(second)
    assert fleet.serving() == [v1, v1]

    result = fleet.open("stranger").apply(second)
    assert states(result)["one"] == "install_failed", result
    assert "only releases of the signers in" in reason(result, "one")
    assert result.exit_code == 6
    assert fleet.serving() == [v1, v2]  # `two` checks nothing
    listed = fleet.lab.exec("one", "ls /opt/fleetbuild/releases", check=True).stdout.split()
    assert listed == [v1]

    result = fleet.open("operator").apply(second)
    assert states(result) == {"one": "installed", "two": "up_to_date"}
    assert fleet.serving() == [v2, v2]
    seen = fleet.lab.exec("one", "cat /opt/fleetbuild/.signed", check=True).stdout
    assert abs(int(seen) - time.time()) < 3600


def test_a_rollback_needs_no_key_and_the_next_apply_does(fleet: Fleet) -> None:
    first, second = fleet.plan("1.0"), fleet.plan("2.0")
    fleet.open("operator").save_plan(second)
    result = fleet.open(None).rollback()
    assert states(result) == dict.fromkeys(NODES, "rolled_back"), result
    assert fleet.serving() == [release_of(first)] * 2
    result = fleet.open("operator").apply(fleet.plan("2.0"))  # the old plan is overtaken
    assert states(result) == dict.fromkeys(NODES, "installed")
    assert fleet.serving() == [release_of(second)] * 2
