"""What an apply tells while it runs: who works on what, how far it is, and what failed."""

from pathlib import Path

import pytest

from fleetbuild.apply.stages import carry_out
from fleetbuild.models.config import Rollout
from tests.factories.fleets import facts
from tests.factories.role_modules import plugin
from tests.factories.runs import LOG, FakeFleet, fleet_of, group, plan

PLAN = plan(group("avx", ["avx-1", "avx-2"]), group("avx2", ["avx2-1", "avx2-2"]))


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, *PLAN.groups)


def test_events_name_who_works_and_what_failed(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-2"] = "install"
    shared = group("avx2", ["avx2-1", "avx2-2"])
    other = shared.model_copy(update={"name": "cpu-avx512-cp311", "nodes": ("avx512-1",)})
    fleet.facts["avx512-1"] = facts("avx512")
    fleet.trouble["build.yml", "avx2-1"] = "failed"
    fleet.apply(plan(group("avx", ["avx-1", "avx-2"]), shared, other))
    assert fleet.told[0].stage == "check"
    assert fleet.told[0].message == "the plan"  # a row at a terminal has "checking" before it
    builds = [event for event in fleet.told if event.stage == "build"]
    started = {event.node for event in builds if event.package and event.state == "started"}
    assert started == {"avx-1", "avx2-1"}
    awaited = [event for event in builds if event.group == other.name]
    assert [event.state for event in awaited] == ["progress", "failed"]
    assert awaited[0].message == "waits for hnswlib, built on avx2-1"
    waves_told = [
        (e.state, e.nodes) for e in fleet.told if e.stage == "install" and e.nodes is not None
    ]
    assert ("started", ("avx-1",)) in waves_told
    lost = next(event for event in fleet.told if event.node == "avx-2" and event.state == "failed")
    assert lost.log == LOG


@pytest.mark.parametrize("trouble", ["install", "verify"])
def test_a_failed_node_is_reported_once_while_the_others_go_on(
    fleet: FakeFleet, trouble: str
) -> None:
    names = ["avx-1", "avx-2", "avx-3", "avx-4"]
    fleet.facts |= {name: facts("avx") for name in names}
    fleet.trouble["install.yml", "avx-2"] = trouble
    limits = Rollout(canary=1, serial="100%", max_fail=1)
    fleet.apply(plan(group("avx", names), rollout=limits))
    ends = [(each.node, each.state) for each in fleet.told if each.state == "failed" and each.node]
    assert ends == [("avx-2", "failed")]
    failed = next(number for number, each in enumerate(fleet.told) if each.state == "failed")
    served = [
        number for number, each in enumerate(fleet.told) if each.stage == "activate" and each.node
    ]
    assert served[0] < failed < served[1]
    assert fleet.told[failed].log == LOG


def test_a_build_that_stops_without_a_reply_is_reported(fleet: FakeFleet) -> None:
    for name in ("avx-1", "avx-2"):  # the fallback too
        fleet.trouble["build.yml", name] = "unreachable"
    result = fleet.apply()
    (failed,) = [event for event in fleet.told if event.package and event.state == "failed"]
    assert (failed.group, failed.node, failed.log) == ("cpu-avx-cp311", "avx-2", LOG)
    assert failed.message == result.wheels[0].reason
    assert result.wheels[0].log == LOG


def test_a_build_says_what_came_from_the_compiler_cache(fleet: FakeFleet, tmp_path: Path) -> None:
    run = fleet.run(PLAN, tmp_path, told := [])
    log = run.state.incoming / str(PLAN.groups[0].wheels[0].artifact_key) / "build.log"
    log.parent.mkdir(parents=True)
    log.write_text("# From the compiler cache: 228 of 240 files.\n# bundled\n")
    carry_out(run)
    built = [each for each in told if each.stage == "build" and each.state == "ok"]
    ends = {each.group: each.message for each in built}
    assert ends["cpu-avx-cp311"] == "built with the compiler cache (228 of 240 files)"
    assert ends["cpu-avx2-cp311"] == "built"


def test_a_failed_build_names_the_log_that_arrived(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.trouble["build.yml", "avx-1"] = "failed"
    run = fleet.run(PLAN, tmp_path, told := [])
    log = run.state.incoming / str(PLAN.groups[0].wheels[0].artifact_key) / "build.log"
    log.parent.mkdir(parents=True)
    log.write_text("a.c:1: error\n")
    result = carry_out(run)
    (failed,) = [event for event in told if event.package and event.state == "failed"]
    assert failed.log == result.wheels[0].log == str(log.resolve())


def test_nodes_that_a_stopped_group_does_not_reach_are_reported(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "install"
    fleet.apply()
    (held,) = [
        event for event in fleet.told if event.state == "skipped" and event.stage == "install"
    ]
    assert (held.group, held.nodes) == ("cpu-avx-cp311", ("avx-2",))
    assert held.message == "avx-1, a canary of this group, failed."


@pytest.mark.parametrize("trouble", ["install, end", "install, lost"])
def test_a_node_whose_reservation_cannot_be_ended_either_is_reported_once(
    fleet: FakeFleet, trouble: str
) -> None:
    fleet.trouble["install.yml", "avx-1"] = trouble
    fleet.apply()
    states = ("failed", "unreachable")
    (failed,) = [event for event in fleet.told if event.node == "avx-1" and event.state in states]
    assert (failed.state, failed.message) == ("failed", "The disk is full.")


def test_a_fetch_reports_the_file_that_it_waits_for(fleet: FakeFleet) -> None:
    fleet.apply()
    going = [event for event in fleet.told if event.stage == "fetch" and event.state == "progress"]
    assert [(event.done, event.total) for event in going] == [(0, 3), (1, 3), (2, 3)]
    assert all(event.message.endswith((".whl", ".tar.gz")) for event in going)


def test_a_missing_compiler_cache_is_reported_once_a_node(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "no cache"
    assert fleet.apply().exit_code == 0
    (warning,) = [event for event in fleet.told if event.state == "warning"]
    assert (warning.stage, warning.node) == ("build", "avx-1")
    assert warning.message.startswith("avx-1 has no ccache (build.cache)")
    assert warning.fix == "Install ccache on avx-1, or set build: {cache: none}."


def test_the_advice_that_decides_what_an_apply_does_is_known() -> None:
    assert "wait-for-run" in plugin("plugin_utils.advice").TABLE


def test_a_lease_that_was_taken_over_is_an_event(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-2"] = "expired lease"
    fleet.apply()
    (warning,) = [event for event in fleet.told if event.state == "warning"]
    assert (warning.stage, warning.node) == ("install", "avx-2")
    assert warning.message == "Took over the expired lease of a run of ann."
