"""What a killed run left on nodes where the next run changes nothing: its lease and its wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, fleet_of, group, plan

PAIR = group("avx", ["avx-1", "avx-2"])


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, PAIR)


def apply(fleet: FakeFleet) -> list[list[str]]:
    """Apply; return the nodes of each clean-up."""
    fleet.calls.clear()
    fleet.apply(plan(PAIR, rollout={"max_unreachable": 2}))
    return [nodes for name, nodes in fleet.calls if name == "clean_up.yml"]


def now_it_serves(fleet: FakeFleet, name: str) -> None:
    """The node has made the switch, although its run was never told."""
    (other,) = set(PAIR.nodes) - {name}
    fleet.facts[name] = fleet.facts[other]


def test_the_next_run_cleans_up_where_it_changes_nothing(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-2"] = "unreachable"
    assert apply(fleet) == []
    now_it_serves(fleet, "avx-2")
    assert apply(fleet) == [["avx-2"]]
    (job,) = fleet.extravars[-1]["fleetbuild_clean_ups"].values()
    run = fleet.run(plan(PAIR), fleet.home)
    assert job["controller"] == run.state.controller()
    assert apply(fleet) == []


def test_a_clean_up_that_fails_is_tried_again(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-2"] = "unreachable"
    apply(fleet)
    now_it_serves(fleet, "avx-2")
    for trouble in ("unreachable", "failed", ""):  # such as a read-only disk
        fleet.trouble["clean_up.yml", "avx-2"] = trouble
        assert apply(fleet) == [["avx-2"]]
        warned = [event.node for event in fleet.told if event.state == "warning"]
        assert warned == (["avx-2"] if trouble else [])
    assert apply(fleet) == []


def test_a_node_that_failed_is_cleaned_up_once_it_is_up_to_date(fleet: FakeFleet) -> None:
    """Its disk was read-only, say, so that the lease could not be ended."""
    fleet.trouble["install.yml", "avx-2"] = "install"
    assert apply(fleet) == []
    now_it_serves(fleet, "avx-2")
    assert apply(fleet) == [["avx-2"]]
    assert apply(fleet) == []


def test_an_interrupted_run_is_cleaned_up_after(fleet: FakeFleet, tmp_path: Path) -> None:
    home, fleet.home = fleet.home, tmp_path / "other"
    apply(fleet)
    fleet.home = home
    served = dict(fleet.facts)
    fleet.facts = {name: facts(PAIR.target.isa) for name in PAIR.nodes}
    fleet.trouble["install.yml", "avx-1"] = "ctrl-c"
    with pytest.raises(Exception, match="Interrupted"):
        apply(fleet)
    fleet.facts = served
    assert apply(fleet) == [["avx-1"]]  # the canary
