"""Damaged releases on real nodes: they are found, told, and installed again without a build."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Inventory, NodeStatus, Plan, Result
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

LIBRARY = "$(echo /opt/fleetbuild/current/lib/python3*/site-packages/second*.so)"
FLIP = f"printf X | dd of={LIBRARY} bs=1 seek=5000 conv=notrunc status=none"
# As a disk does it: the file system notices nothing.
FLIP_BEHIND = f"touch -r {LIBRARY} /tmp/time; {FLIP}; touch -r /tmp/time {LIBRARY}"


@dataclass
class Fleet:
    lab: Lab
    state: Path
    inventory: Inventory
    releases: list[str]
    plans: list[Plan]

    @property
    def plan(self) -> Plan:
        return self.plans[-1]

    def calls(self) -> fleetbuild.Fleet:
        return fleetbuild.Fleet(self.inventory, state_dir=self.state)

    def do(self, node: str, command: str) -> str:
        return self.lab.exec(node, command, check=True).stdout.strip()

    def drift(self) -> dict[str, NodeStatus]:
        return self.calls().status()

    def check_intact(self) -> None:
        """Every node serves the second release, and still has the first."""
        for node in self.lab.nodes:
            assert (
                self.do(node, "readlink /opt/fleetbuild/current") == f"releases/{self.releases[1]}"
            )
            assert self.do(node, "/opt/fleetbuild/current/bin/python -c 'import second'") == ""
            listed = self.do(node, "ls -A /opt/fleetbuild/releases").split()
            assert sorted(listed) == sorted(self.releases)
            manifest = json.loads(self.do(node, "cat /opt/fleetbuild/current/manifest.json"))
            assert manifest["verified"] is True
        assert {status.drift for status in self.drift().values()} == {"none"}


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    lab = make_lab({"nodes": {"a": {"hardware": "avx"}, "b": {"hardware": "avx"}}})
    folder = tmp_path_factory.mktemp("damaged")
    inventory = fleetbuild.read_inventory(lab.inventory)
    releases, plans = [], []
    for name in ("first", "second"):
        calls = fleetbuild.Fleet(inventory, state_dir=folder / "state")
        plan = calls.plan([f"{name} @ {source_tree(folder / name)}"])
        calls.save_plan(plan)
        result = calls.apply(plan)
        assert result.exit_code == 0, result
        releases.append(str(plan.groups[0].release_id))
        plans.append(plan)
    return Fleet(lab, folder / "state", inventory, releases, plans)


def states(result: Result) -> dict[str, str]:
    return {node.node: node.state for node in result.nodes}


def test_apply_reinstalls_what_the_probe_finds_damaged(fleet: Fleet) -> None:
    fleet.do("a", FLIP)
    fleet.do("b", "rm /opt/fleetbuild/current/bin/python")
    found = fleet.drift()
    assert {status.drift for status in found.values()} == {"damaged"}
    assert "second" in found["a"].sentence
    assert "bin/python" in found["b"].sentence
    again = fleet.calls().plan(fleet.plan.packages)
    assert again.summary.wheels_to_build == 0
    assert again.summary.nodes_to_change == 2
    result = fleet.calls().apply(fleet.plan)
    assert states(result) == {"a": "installed", "b": "installed"}, [n.reason for n in result.nodes]
    assert [wheel.state for wheel in result.wheels] == ["reused"]
    fleet.check_intact()
    assert set(states(fleet.calls().apply(fleet.plan)).values()) == {"up_to_date"}


def test_verify_repairs_damage_that_only_hashes_show(fleet: Fleet) -> None:
    fleet.do("a", FLIP_BEHIND)
    fleet.do("b", "truncate -s 40 /opt/fleetbuild/current/manifest.json")
    found = fleet.drift()
    assert (found["a"].drift, found["b"].drift) == ("none", "damaged")
    result = fleet.calls().verify()
    assert states(result) == {"a": "verify_failed", "b": "verify_failed"}
    assert result.exit_code == 7
    assert all("--repair" in str(node.fix) for node in result.nodes)
    assert "(changed)" in str(result.nodes[0].reason)
    # It does not count as verified from now on.
    assert fleet.drift()["a"].drift == "changed"
    repaired = fleet.calls().verify(repair=True)
    assert states(repaired) == {"a": "installed", "b": "installed"}, repaired
    assert repaired.exit_code == 0
    fleet.check_intact()
    assert set(states(fleet.calls().verify(repair=True)).values()) == {"verified"}
