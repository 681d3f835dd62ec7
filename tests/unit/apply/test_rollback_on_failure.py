"""`--rollback-on-failure`: a stopped group goes back to what it served before, and no other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from fleetbuild.apply.stages import carry_out
from fleetbuild.cli.show.result import result_lines
from fleetbuild.extension import Follower
from fleetbuild.models import Manifest, NodeResult, Plan, Result
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import Serving
from fleetbuild.state import StateDir
from tests.factories.runs import FakeFleet, fleet_of, group, plan

FIVE = group("avx", [f"avx-{number}" for number in range(1, 6)])
TWO = group("avx2", ["avx2-1", "avx2-2"])
OLD = Manifest(
    release="default", id="0" * 16, group=FIVE.name, python="/p", wheels=(), verified=True
)


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, FIVE, TWO)


def serve(fleet: FakeFleet, *names: str, **changes: object) -> None:
    """These nodes serve a release of an earlier apply."""
    manifest = OLD.model_copy(update=changes)
    for name in names:
        fleet.facts[name] = fleet.facts[name].model_copy(update={"release": {"default": manifest}})


def apply(fleet: FakeFleet, **options: bool) -> Result:
    options = {"rollback_on_failure": True, **options}
    return fleet.apply(made({"serial": 2, "max_fail": 0}), **options)


def made(rollout: dict[str, object]) -> Plan:
    return plan(FIVE, TWO, rollout=rollout)


def of(result: Result, name: str) -> NodeResult:
    return next(node for node in result.nodes if node.node == name)


def states(result: Result) -> list[str]:
    return [node.state for node in result.nodes]


def served(fleet: FakeFleet) -> list[str | None]:
    releases = (fleet.facts[name].release.get("default") for name in FIVE.nodes)
    return [manifest.id if manifest else None for manifest in releases]


def test_a_stopped_group_serves_again_what_it_served_before(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    serve(fleet, "avx-1", "avx-2", "avx-3")
    fleet.trouble["install.yml", "avx-3"] = "verify"
    result = apply(fleet)
    assert states(result) == [
        "rolled_back", "rolled_back", "verify_failed", "not_reached", "not_reached",
        "installed", "installed",
    ]  # fmt: skip
    assert served(fleet) == [OLD.id, OLD.id, OLD.id, None, None]
    assert of(result, "avx-2").reason == (
        f"avx-3 failed, and rollout.max_fail is 0. Rolled back: release {OLD.id} serves again."
    )
    assert of(result, "avx-2").release_id == OLD.id
    assert ("rollback.yml", ["avx-1", "avx-2"]) in fleet.calls
    assert [e.node for e in fleet.told if (e.stage, e.message) == ("activate", "rolled back")] == [
        "avx-1", "avx-2",
    ]  # fmt: skip
    assert result.exit_code == 7
    assert any(line.startswith("rolled back: avx-[1-2]: ") for line in result_lines(result))
    left = StateDir(tmp_path / "state").last_result()
    assert left is not None
    assert left.left_there("default")["avx-1"].release_id == OLD.id


def test_a_node_that_served_nothing_serves_nothing_again(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.trouble["install.yml", "avx-2"] = "install"
    result = apply(fleet)
    assert states(result)[:3] == ["rolled_back", "install_failed", "rolled_back"]
    assert str(of(result, "avx-1").reason).endswith("Rolled back: no release serves, as before.")
    assert served(fleet) == [None] * 5
    left = StateDir(tmp_path / "state").last_result()
    assert left is not None
    assert "avx-1" not in left.left_there("default")  # so `status` does not call it lost


@pytest.mark.parametrize("batch", ["avx-4", "avx-5"])
def test_a_group_whose_last_batch_fails_goes_back_too(fleet: FakeFleet, batch: str) -> None:
    fleet.trouble["install.yml", batch] = "install"
    assert states(apply(fleet)).count("rolled_back") == 4


def test_without_the_option_the_switched_nodes_keep_the_new_release(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-3"] = "install"
    result = apply(fleet, rollback_on_failure=False)
    assert states(result)[:3] == ["installed", "installed", "install_failed"]


def test_failures_within_max_fail_roll_nothing_back(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.trouble["install.yml", "avx-3"] = "install"
    run = fleet.run(made({"max_fail": 1}), tmp_path / "state", rollback_on_failure=True)
    assert "rolled_back" not in states(carry_out(run))


def test_a_release_that_was_not_verified_before_is_not_switched_back_to(fleet: FakeFleet) -> None:
    serve(fleet, "avx-1", verified=False)
    fleet.trouble["install.yml", "avx-2"] = "install"
    result = apply(fleet)
    assert states(result)[0] == "installed"
    assert of(result, "avx-1").reason == (
        f"Not rolled back: release {OLD.id}, which served before, was not verified."
    )
    assert any("Not rolled back" in line for line in result_lines(result))


def test_a_rollback_that_fails_is_said(fleet: FakeFleet) -> None:
    serve(fleet, "avx-1")
    fleet.trouble["install.yml", "avx-2"] = "verify"
    fleet.trouble["rollback.yml", "avx-1"] = "fails"
    result = apply(fleet)
    assert of(result, "avx-1").state == "install_failed"
    assert str(of(result, "avx-1").reason).startswith(
        "The rollback failed, so the new release may still serve: no release"
    )
    assert of(result, "avx-3").state == "rolled_back"


def test_a_node_that_was_up_to_date_before_the_run_stays(fleet: FakeFleet) -> None:
    serve(fleet, "avx-1", id=FIVE.release_id)
    fleet.trouble["install.yml", "avx-2"] = "install"
    result = apply(fleet)
    assert states(result)[:3] == ["up_to_date", "install_failed", "rolled_back"]


class Refusing(Follower):
    """A cluster that stops taking labels off once a node has switched."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:  # noqa: ARG002
        return {
            name: LabelResult(
                node=name,
                kubernetes_node=name,
                state="forbidden" if name in self.refuses else "labelled",
                reason="Forbidden." if name in self.refuses else None,
            )
            for name in names
        }

    def after(self, served: Serving) -> dict[str, LabelResult]:
        self.refuses |= served.keys()
        return {}


def test_a_node_whose_labels_cannot_be_removed_is_said_to_keep_the_new_release(
    fleet: FakeFleet,
) -> None:
    fleet.follower = Refusing()
    fleet.trouble["install.yml", "avx-2"] = "install"
    result = apply(fleet)
    assert of(result, "avx-1").state == "installed"
    assert of(result, "avx-1").reason == (
        "Not rolled back: its release labels could not be removed: Forbidden."
    )
