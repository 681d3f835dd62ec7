"""Labels by Node Feature Discovery on real SSH nodes: what its feature files hold, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Event, Plan, Result
from fleetbuild.apply.followers import OFF
from fleetbuild.config import config_model
from fleetbuild.extensions.kubernetes.labels.node_labels import node_labels
from tests.factories.files import make_wheel
from tests.fleet.conftest import MakeLab
from tests.lab import Lab

FILE = "/etc/kubernetes/node-feature-discovery/features.d/fleetbuild"
HARDWARE = {"fleetbuild.dev/class": "cpu-avx2", "fleetbuild.dev/isa": "avx2"}


@dataclass
class Fleet:
    lab: Lab
    state: Path
    wheels: Path
    meanwhile: list[dict[str, str]] = field(default_factory=list)  # right after labels came off

    def calls(self) -> fleetbuild.Fleet:
        settings = {
            "kubernetes": {"labels": "nfd"},
            "index": [str(self.wheels)],
            "build": {"policy": "published"},
            "grouping": {"rungs": "detected"},
        }
        config = config_model().model_validate(settings).within(str(self.state))
        return fleetbuild.Fleet(self.lab.inventory, config=config, state_dir=self.state)

    def plan(self, version: str) -> Plan:
        return self.calls().plan([f"tiny=={version}"])

    def apply(self, plan: Plan) -> Result:
        self.calls().save_plan(plan)
        return self.calls().apply(on_event=self.listen)

    def listen(self, event: Event) -> None:
        if event.stage == "label" and event.message == OFF:
            self.meanwhile.append(self.labels(str(event.node)))

    def labels(self, node: str) -> dict[str, str]:
        text = self.lab.exec(node, f"cat {FILE} 2>/dev/null || true", check=True).stdout
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return dict(line.split("=", 1) for line in lines)

    def runs(self) -> int:
        return len(list((self.state / "runs").glob("*")))


@pytest.fixture(scope="module")
def fleet(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    lab = make_lab({"nodes": {name: {"hardware": "avx2"} for name in ("one", "two")}})
    wheels = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "tiny", version, files={"tiny.py": version.encode()})
    return Fleet(lab, tmp_path_factory.mktemp("state"), wheels)


def test_labels_follow_the_release_through_apply_and_rollback(fleet: Fleet) -> None:
    first = fleet.plan("1.0")
    assert fleet.apply(first).exit_code == 0
    (group,) = first.groups
    assert fleet.meanwhile == [HARDWARE, HARDWARE]
    assert fleet.labels("one") == fleet.labels("two") == node_labels(first, group)

    runs = fleet.runs()
    again = fleet.apply(first)
    assert (again.exit_code, again.changed, fleet.runs()) == (0, False, runs)

    second = fleet.plan("2.0")
    fleet.meanwhile.clear()
    result = fleet.apply(second)
    assert {each.state for each in result.labels} == {"labelled"}
    changing = {**HARDWARE, "fleetbuild.dev/group": group.name}  # DaemonSets select by the group
    assert fleet.meanwhile == [changing, changing]
    assert fleet.labels("two") == node_labels(second, second.groups[0])

    fleet.meanwhile.clear()
    back = fleet.calls().rollback(on_event=fleet.listen)
    assert {node.state for node in back.nodes} == {"rolled_back"}
    assert fleet.meanwhile == [changing, changing]
    assert fleet.labels("one") == fleet.labels("two") == node_labels(first, group)


def test_a_release_that_fails_verification_loses_its_labels(fleet: Fleet) -> None:
    broken = "rm -rf /opt/fleetbuild/current/lib/python3.11/site-packages/tiny*"
    fleet.lab.exec("two", broken, check=True)
    result = fleet.calls().verify()
    assert [node.state for node in result.nodes] == ["verified", "verify_failed"]
    assert "fleetbuild.dev/release" in fleet.labels("one")
    assert fleet.labels("two") == HARDWARE
