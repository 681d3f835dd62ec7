"""Nodes that stop answering during a rollout, and how many of them a group bears."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.ansible import HostRun
from fleetbuild.ansible.silent_nodes import describe_loss
from fleetbuild.models import NodeResult, Result
from tests.factories.runs import FakeFleet, fleet_of, group, plan

FIVE = group("avx", [f"avx-{number}" for number in range(1, 6)])
TWO = group("avx2", ["avx2-1", "avx2-2"])


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, FIVE, TWO)


def apply(fleet: FakeFleet, **rollout: int | str) -> Result:
    return fleet.apply(plan(FIVE, TWO, rollout=rollout))


def states(result: Result) -> str:
    """installed: +, unreachable: ?, not reached: -, in the plan's order."""
    signs = {"installed": "+", "up_to_date": "=", "unreachable": "?", "not_reached": "-"}
    return "".join(signs.get(node.state, "!") for node in result.nodes)


def of(result: Result, name: str) -> NodeResult:
    return next(node for node in result.nodes if node.node == name)


def test_other_nodes_of_a_step_serve_while_one_waits(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "waits"
    fleet.answers.set()
    result = apply(fleet)
    assert states(result) == "+++++++"
    (waiting,) = [event for event in fleet.told if event.state == "waiting"]
    assert (waiting.node, waiting.message) == ("avx-1", "avx-1 is still installing (40 s)")
    assert (waiting.group, waiting.stage) == (FIVE.name, "install")
    served = next(
        e for e in fleet.told if (e.stage, e.state, e.node) == ("activate", "ok", "avx2-1")
    )
    assert fleet.told.index(served) < fleet.told.index(waiting)  # of the same step


def test_a_step_is_one_playbook_for_all_groups(fleet: FakeFleet) -> None:
    apply(fleet, serial=2)
    assert [nodes for name, nodes in fleet.calls if name == "install.yml"] == [
        ["avx-1", "avx2-1"], ["avx-2", "avx-3", "avx2-2"], ["avx-4", "avx-5"],
    ]  # fmt: skip


def test_a_group_that_stops_takes_part_in_no_further_step(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "install"
    apply(fleet, serial=1)
    installs = [nodes for name, nodes in fleet.calls if name == "install.yml"]
    assert installs == [["avx-1", "avx2-1"], ["avx2-2"]]


def test_a_lost_node_is_named_with_its_step_and_finished_by_the_next_apply(
    fleet: FakeFleet,
) -> None:
    fleet.trouble["install.yml", "avx-3"] = "unreachable"
    result = apply(fleet)
    assert states(result) == "++?++++"
    assert of(result, "avx-3").reason == (
        "No answer for 60 s while installing; nothing serves there yet."
    )
    assert result.exit_code == 3
    assert [event.stage for event in fleet.told if event.state == "unreachable"] == ["install"]
    fleet.trouble.clear()
    again = apply(fleet)
    assert states(again) == "==+===="
    assert again.exit_code == 0


def test_the_next_weakest_node_replaces_a_lost_canary(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "unreachable"
    assert states(apply(fleet)) == "?++++++"
    installs = [nodes for name, nodes in fleet.calls if name == "install.yml"]
    ours = [[name for name in nodes if name in FIVE.nodes] for nodes in installs]
    assert list(filter(None, ours))[:2] == [["avx-1"], ["avx-2"]]


def test_two_lost_canaries_stop_the_group(fleet: FakeFleet) -> None:
    for name in ("avx-1", "avx-2"):
        fleet.trouble["install.yml", name] = "unreachable"
    result = apply(fleet, max_unreachable="100%")
    assert states(result) == "??---++"
    assert "avx-1 and avx-2, the canaries" in str(of(result, "avx-3").reason)


def test_a_canary_that_another_controller_holds_is_replaced_and_does_not_fail_the_group(
    fleet: FakeFleet,
) -> None:
    fleet.trouble["install.yml", "avx-1"] = "held"
    result = apply(fleet, max_fail=0)
    assert states(result) == "!++++++"
    assert (of(result, "avx-1").held, of(result, "avx-1").fix) == (True, "Wait for that run.")
    assert result.exit_code == 6


def test_a_group_of_which_every_canary_is_held_stops(fleet: FakeFleet) -> None:
    for name in ("avx-1", "avx-2"):
        fleet.trouble["install.yml", name] = "held"
    result = apply(fleet)
    assert states(result) == "!!---++"
    assert of(result, "avx-3").reason == (
        "Another controller is changing avx-[1-2], so no canary has tried the release."
    )


def test_an_apply_that_waits_installs_on_nodes_once_they_are_no_longer_held(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("fleetbuild.apply.wave.sleep", paused.append)
    fleet.trouble["install.yml", "avx-1"] = "held once"
    result = fleet.apply(plan(FIVE, TWO), wait=True)
    assert states(result) == "+++++++"
    assert len(paused) == 1
    said = [(event.state, event.message) for event in fleet.told if event.node == "avx-1"]
    assert ("warning", "A run of ann is changing these. Waiting for it to end.") in said
    assert not [state for state, _ in said if state == "failed"]


@pytest.mark.parametrize(
    ("limit", "lost", "end"),
    [
        ("25%", ["avx-2"], "+?+++++"),  # a percentage stands for one node at least
        ("25%", ["avx-2", "avx-3"], "+??--++"),
        (0, ["avx-2"], "+?---++"),
        (0, ["avx-1"], "?----++"),
        (2, ["avx-2", "avx-3"], "+??++++"),
    ],
)
def test_a_group_stops_when_more_nodes_are_lost_than_max_unreachable(
    fleet: FakeFleet, limit: int | str, lost: list[str], end: str
) -> None:
    for name in lost:
        fleet.trouble["install.yml", name] = "unreachable"
    result = apply(fleet, serial=1, max_fail=0, max_unreachable=limit)
    assert states(result) == end
    assert result.exit_code == 3
    if "-" in end:
        assert f"rollout.max_unreachable is {limit}" in str(of(result, "avx-5").reason)


def test_nodes_that_were_unreachable_before_do_not_count(fleet: FakeFleet) -> None:
    away = {"state": "unreachable", "reason": "no route"}
    for name in ("avx-2", "avx-3"):
        fleet.facts[name] = fleet.facts[name].model_copy(update=away)
    assert states(apply(fleet, max_unreachable=0)) == "+??++++"


@pytest.mark.parametrize(
    ("task", "silent", "said"),
    [
        ("install_wheel : Copy wheels", 60.4, "No answer for 60 s while copying wheels"),
        ("verify_wheel : Verify the release", 61, "No answer for 61 s while verifying"),
        ("toolchain : Look at it", 60, "No answer for 60 s at the step 'Look at it'"),
        ("build_wheel : Wait for the build", 1, "The connection was lost while building: no route"),
    ],
)
def test_the_step_at_which_a_node_was_lost_has_a_name(task: str, silent: float, said: str) -> None:
    assert describe_loss(HostRun("unreachable", "no route", task, silent)) == said
