"""build.confirm: 2: a wheel enters the store only if a second node built the same content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetbuild import Config
from fleetbuild.apply.stages import carry_out
from fleetbuild.errors import ConfigError
from fleetbuild.models import Plan
from fleetbuild.models.config import Build
from fleetbuild.plan.plan_fleet import plan_fleet
from tests.factories.files import make_wheel
from tests.factories.fleets import facts, inventory, planned
from tests.factories.runs import PYTHON, FakeFleet, FakeStore, group, plan, wheel


def content(tmp_path: Path, name: str, code: bytes) -> bytes:
    return make_wheel(tmp_path / name, files={"hnswlib.so": code}).read_bytes()


def fleet_of(tmp_path: Path, *names: str, **code: bytes) -> FakeFleet:
    fleet = FakeFleet({name: facts("avx") for name in names}, FakeStore(tmp_path))
    fleet.built = {
        name.replace("_", "-"): content(tmp_path, name, each) for name, each in code.items()
    }
    return fleet


def confirmed_plan(*nodes: str) -> Plan:
    return plan(group("avx", list(nodes)), confirm=2)


def test_two_equal_builds_are_stored_once(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "avx-1", "avx-2", avx_1=b"1", avx_2=b"1")
    result = carry_out(fleet.run(confirmed_plan("avx-1", "avx-2"), tmp_path / "state"))
    assert [name for name, _ in fleet.calls][:2] == ["build.yml", "build.yml"]
    assert [limit for _, limit in fleet.calls][:2] == [["avx-1"], ["avx-2"]]
    assert result.exit_code == 0
    assert [(each.state, each.built_on) for each in result.wheels] == [("built", "avx-1")]
    (context,) = fleet.store.contexts.values()
    assert context.confirmed_on == "avx-2"
    assert {node.state for node in result.nodes} == {"installed"}


def test_builds_that_differ_are_refused_with_the_files(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "avx-1", "avx-2", avx_1=b"1", avx_2=b"planted")
    result = carry_out(fleet.run(confirmed_plan("avx-1", "avx-2"), tmp_path / "state"))
    (wheel,) = result.wheels
    assert wheel.state == "refused"
    assert "builds of avx-1 and avx-2 differ" in str(wheel.reason)
    assert "hnswlib.so differs (1 and 7 bytes)" in str(wheel.reason)
    assert (result.exit_code, fleet.store.shelf) == (7, {})
    assert not any(name == "install.yml" for name, _ in fleet.calls)


@pytest.mark.parametrize("trouble", ["failed", "gone"])
def test_a_wheel_that_no_second_node_built_is_not_used(tmp_path: Path, trouble: str) -> None:
    fleet = fleet_of(tmp_path, "avx-1", "avx-2", avx_1=b"1", avx_2=b"1")
    if trouble == "failed":
        fleet.trouble["build.yml", "avx-2"] = "failed"
    else:
        fleet.facts["avx-2"] = fleet.facts["avx-2"].model_copy(
            update={"state": "unreachable", "reason": "no route"}
        )
    result = carry_out(fleet.run(confirmed_plan("avx-1", "avx-2"), tmp_path / "state"))
    (wheel,) = result.wheels
    assert (wheel.state, fleet.store.shelf) == ("failed", {})
    assert "no other node did (build.confirm: 2)" in str(wheel.reason)
    assert wheel.fix
    assert result.exit_code == 5


def test_a_node_that_the_second_build_lost_gets_no_release(tmp_path: Path) -> None:
    names = ("avx-1", "avx-2", "avx-3")
    fleet = fleet_of(tmp_path, *names, avx_1=b"1", avx_2=b"1", avx_3=b"1")
    fleet.trouble["build.yml", "avx-2"] = "lost"
    gone = fleet.facts["avx-2"].model_copy(update={"state": "unreachable", "reason": "no route"})

    def leave(name: str) -> None:
        if name == "build.yml":
            fleet.later = {"avx-2": gone}

    fleet.during = leave
    builders = wheel("avx", fallbacks=names[1:], build_pythons=dict.fromkeys(names, PYTHON))
    wanted = plan(group("avx", list(names), wheels=(builders,)), confirm=2)
    result = carry_out(fleet.run(wanted, tmp_path / "state"))
    states = {node.node: node.state for node in result.nodes}
    assert states == {"avx-1": "installed", "avx-2": "unreachable", "avx-3": "installed"}
    assert "does not answer now: no route" in str(result.nodes[1].reason)


def test_a_plan_blocks_a_group_with_one_builder() -> None:
    config = Config(build=Build(confirm=2))
    alone = planned({"a": facts("avx2")}, config=config)
    assert alone.nodes["a"].state == "blocked"
    assert "only a can build hnswlib" in str(alone.nodes["a"].reason)
    two = planned({"a": facts("avx2"), "b": facts("avx2")}, config=config)
    assert (two.confirm, two.exit_code) == (2, 0)
    assert two.groups[0].wheels[0].fallbacks


def test_jobs_of_a_cluster_build_once_so_such_a_plan_is_refused(tmp_path: Path) -> None:
    fleet: Any = {"a": facts("avx2")}
    config = Config(build=Build(confirm=2), packages=("hnswlib==0.8.0",))
    with pytest.raises(ConfigError, match=r"build\.confirm is 2"):
        plan_fleet(inventory(fleet), fleet, config, state_dir=tmp_path, facts_source="cluster")
