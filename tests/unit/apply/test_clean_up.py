"""What a killed run left on nodes where the next run changes nothing: its lease and its wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

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
