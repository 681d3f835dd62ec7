"""Nodes that accept only signed releases, through plan, apply and rollback on real nodes.

Node `one` has a file of allowed signers, node `two` has not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild import BlockedError, Plan, Result
from fleetbuild.config import config_model
from fleetbuild.extensions.supply import signing
from fleetbuild.extensions.supply.signing import ReleaseSigner
from fleetbuild.models.stored import SignedRelease
from tests.factories.files import make_wheel
from tests.lab import Lab

NODES = ("one", "two")


class Forger(ReleaseSigner):
    """Signs with the operator's key, but for a wheel with another hash."""

    def __call__(self, about: Mapping[str, Any]) -> SignedRelease:
        wheels = {name: "0" * 64 if "tiny" in name else value for name, value in _wheels(about)}
        return super().__call__({**about, "wheels": wheels})


class Late(ReleaseSigner):
    """Signs with the operator's key, but with a counter of long ago."""

    def __call__(self, about: Mapping[str, Any]) -> SignedRelease:
        self._clock = lambda: 1000
        return super().__call__(about)


def _wheels(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    return list(about["wheels"].items())


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


def test_only_a_release_with_a_good_signature_is_switched_to(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fleet.plan("1.0")
    result = fleet.open("operator").apply(first)
    assert states(result) == dict.fromkeys(NODES, "installed"), result
    v1 = release_of(first)
    second = fleet.plan("2.0")
    v2 = release_of(second)

    with pytest.raises(BlockedError, match="Only signed releases are accepted by one"):
        fleet.open(None).apply(second)
    assert fleet.serving() == [v1, v1]

    refused = {
        "a stranger's key": ("stranger", ReleaseSigner, "only releases of the signers in"),
        "another wheel": ("operator", Forger, "is for other wheels"),
        "an old signature": ("operator", Late, "too old: its counter is 1000"),
    }
    for what, (key, signer, expected) in refused.items():
        monkeypatch.setattr(signing, "ReleaseSigner", signer)
        result = fleet.open(key).apply(second)
        assert states(result)["one"] == "install_failed", (what, result)
        assert expected in reason(result, "one"), what
        assert result.exit_code == 6
        assert fleet.serving() == [v1, v2], what  # `two` checks nothing
        listed = fleet.lab.exec("one", "ls /opt/fleetbuild/releases", check=True).stdout.split()
        assert listed == [v1], what
    monkeypatch.setattr(signing, "ReleaseSigner", ReleaseSigner)

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


def test_a_rollback_passes_over_a_release_whose_signer_is_not_allowed_any_more(
    fleet: Fleet,
) -> None:
    fleet.allow("stranger")
    result = fleet.open(None).rollback()
    fleet.allow("operator")
    assert states(result)["one"] == "install_failed", result
    assert "signed by a signer in /etc/fleetbuild/allowed_signers" in reason(result, "one")


def test_a_node_without_ssh_keygen_refuses_with_a_sentence(fleet: Fleet) -> None:
    fleet.lab.exec("one", "mv /usr/bin/ssh-keygen /usr/bin/kept", check=True)
    try:
        result = fleet.open("operator").apply(fleet.plan("1.0"))
    finally:
        fleet.lab.exec("one", "mv /usr/bin/kept /usr/bin/ssh-keygen", check=True)
    assert states(result)["one"] == "install_failed", result
    assert "ssh-keygen does not run there" in reason(result, "one")
    assert "openssh-client" in reason(result, "one")
