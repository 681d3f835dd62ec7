"""A release that does not fit on a node's disk fails there before the first node changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fleetbuild.apply import wave
from fleetbuild.models import Result
from fleetbuild.models.release import ENVIRONMENT_BYTES, ManifestWheel
from tests.factories.fleets import facts, manifest
from tests.factories.runs import FakeFleet, fleet_of, group, plan

GROUP = group("avx", ["avx-1", "avx-2", "avx-3"])


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    made = fleet_of(tmp_path, GROUP)
    made.facts["avx-3"] = made.facts["avx-3"].model_copy(update={"install_free_gb": 0.01})
    return made


def apply(fleet: FakeFleet, **limits: int) -> Result:
    return fleet.apply(plan(GROUP, rollout=limits))


def states(result: Result) -> list[str]:
    return [node.state for node in result.nodes]


def test_the_node_with_a_full_disk_is_named_before_the_first_node_changes(fleet: FakeFleet) -> None:
    result = apply(fleet, max_fail=1)
    assert states(result) == ["installed", "installed", "install_failed"]
    assert result.exit_code == 6
    assert str(result.nodes[2].reason).startswith(
        "The disk of /opt/fleetbuild has 11 MB free, and the release needs 40 MB."
    )
    first = next(event for event in fleet.told if event.stage == "install")
    assert (first.node, first.state) == ("avx-3", "failed")
    assert all("avx-3" not in names for name, names in fleet.calls if name == "install.yml")


def test_a_group_whose_limit_is_exceeded_by_full_disks_changes_no_node(fleet: FakeFleet) -> None:
    result = apply(fleet, max_fail=0)
    assert states(result) == ["not_reached", "not_reached", "install_failed"]
    assert "avx-3 failed, and rollout.max_fail is 0" in str(result.nodes[0].reason)
    assert result.nodes[0].fix is None  # avx-3 has it
    assert "install.yml" not in [name for name, _ in fleet.calls]


def test_a_release_that_a_rollback_left_on_the_node_needs_no_space(fleet: FakeFleet) -> None:
    there = {"previous": {"default": str(GROUP.release_id)}}
    fleet.facts["avx-3"] = fleet.facts["avx-3"].model_copy(update=there)
    assert states(apply(fleet)) == ["installed"] * 3


@pytest.mark.parametrize("keeps", [True, False])
def test_a_wheel_of_the_current_release_needs_no_space_for_a_copy(
    tmp_path: Path, keeps: bool
) -> None:
    wheel, fleet = bytes(20_000_000), fleet_of(tmp_path, group("avx", ["avx-1"]))
    fleet.built = {"avx-1": wheel}
    built = ManifestWheel(package="x", version="1", artifact_key="0" * 32,
                          sha256=hashlib.sha256(wheel).hexdigest())  # fmt: skip
    served = manifest("earlier").model_copy(update={"wheels": (built,) if keeps else ()})
    free = (ENVIRONMENT_BYTES + 1_000_000) / 2**30
    fleet.facts["avx-1"] = facts("avx", release={"default": served}, install_free_gb=free)
    result = fleet.apply()
    assert states(result) == ["installed" if keeps else "install_failed"]


def test_the_lease_lasts_as_long_as_the_copy_over_a_slow_link(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wave, "_size", lambda _: 3_000_000_000)
    fleet.facts["avx-3"] = facts("avx")
    apply(fleet)
    specs = [each for each in fleet.extravars if "fleetbuild_installs" in each]
    assert {spec["lease"] for each in specs for spec in each["fleetbuild_installs"].values()} == {
        6000
    }
