"""What a killed run left on nodes where the next run changes nothing: its lease and its wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.apply.stages import carry_out
from fleetbuild.models import Event
from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, FakeStore, group, plan

PAIR = group("avx", ["avx-1", "avx-2"])


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    (tmp_path / "store").mkdir()
    nodes = {name: facts(PAIR.target.isa) for name in PAIR.nodes}
    return FakeFleet(facts=nodes, store=FakeStore(tmp_path / "store"))


def apply(fleet: FakeFleet, state: Path, told: list[Event] | None = None) -> list[list[str]]:
    """Apply; return the nodes of each clean-up."""
    fleet.calls.clear()
    carry_out(fleet.run(plan(PAIR, rollout={"max_unreachable": 2}), state, told))
    return [nodes for name, nodes in fleet.calls if name == "clean_up.yml"]


def now_it_serves(fleet: FakeFleet, name: str) -> None:
    """The node has made the switch, although its run was never told."""
    (other,) = set(PAIR.nodes) - {name}
    fleet.facts[name] = fleet.facts[other]


def test_the_next_run_cleans_up_where_it_changes_nothing(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.trouble["install.yml", "avx-2"] = "unreachable"
    assert apply(fleet, tmp_path / "state") == []
    now_it_serves(fleet, "avx-2")
    assert apply(fleet, tmp_path / "state") == [["avx-2"]]
    (job,) = fleet.extravars[-1]["fleetbuild_clean_ups"].values()
    run = fleet.run(plan(PAIR), tmp_path / "state")
    assert job["controller"] == run.state.controller()
    assert apply(fleet, tmp_path / "state") == []


def test_a_clean_up_that_fails_is_tried_again(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.trouble["install.yml", "avx-2"] = "unreachable"
    apply(fleet, tmp_path / "state")
    now_it_serves(fleet, "avx-2")
    for trouble in ("unreachable", "failed", ""):  # such as a read-only disk
        fleet.trouble["clean_up.yml", "avx-2"] = trouble
        told: list[Event] = []
        assert apply(fleet, tmp_path / "state", told) == [["avx-2"]]
        warned = [event.node for event in told if event.state == "warning"]
        assert warned == (["avx-2"] if trouble else [])
    assert apply(fleet, tmp_path / "state") == []


def test_a_node_that_failed_is_cleaned_up_once_it_is_up_to_date(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    """Its disk was read-only, say, so that the lease could not be ended."""
    fleet.trouble["install.yml", "avx-2"] = "install"
    assert apply(fleet, tmp_path / "state") == []
    now_it_serves(fleet, "avx-2")
    assert apply(fleet, tmp_path / "state") == [["avx-2"]]
    assert apply(fleet, tmp_path / "state") == []


def test_an_interrupted_run_is_cleaned_up_after(fleet: FakeFleet, tmp_path: Path) -> None:
    apply(fleet, tmp_path / "other")
    served = dict(fleet.facts)
    fleet.facts = {name: facts(PAIR.target.isa) for name in PAIR.nodes}
    fleet.trouble["install.yml", "avx-1"] = "ctrl-c"
    with pytest.raises(Exception, match="Interrupted"):
        apply(fleet, tmp_path / "state")
    fleet.facts = served
    assert apply(fleet, tmp_path / "state") == [["avx-1"]]  # the canary
