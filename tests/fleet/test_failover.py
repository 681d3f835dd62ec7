"""A builder whose machine fails during the build: the next fallback builds in the same apply."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild import Config, Event, Plan, Result
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

NODES = ["one", "three", "two"]
# Puts the build folder on a file system of 64 MB, and fills that.
FULL = (
    "mkdir -p ~fleet/.cache/fleetbuild /dev/shm/builds; cd ~fleet/.cache/fleetbuild;"
    " rm -rf builds; ln -s /dev/shm/builds builds; chown fleet: .. .;"
    " chown fleet: /dev/shm/builds; dd if=/dev/zero of=/dev/shm/fill bs=64k"
)


class Fleet:
    """Three nodes in one group, and an apply in which something happens at a given moment."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.inventory = fleetbuild.read_inventory(lab.inventory)
        self.told: list[Event] = []

    def plan(self, name: str) -> Plan:
        tree = source_tree(self.folder / name, setup="time.sleep(6)")
        options: dict[str, Any] = {
            "config": Config(release=name),
            "state_dir": self.folder / "state",
        }
        return fleetbuild.Fleet(self.inventory, **options).plan([f"{name} @ {tree}"])

    def apply(
        self,
        plan: Plan,
        building: Callable[[str], object] = lambda _: None,
        *,
        at: str = "progress",
    ) -> Result:
        """`building` is called once, with the representative, when its build is `at` this state."""
        self.told.clear()
        builder, called = builder_of(plan), list[str]()

        def listen(event: Event) -> None:
            self.told.append(event)
            at_work = (event.stage, event.state, event.node) == ("build", at, builder)
            # The look for an earlier build reports progress too, without a line of a log.
            if at_work and not called and (event.message or at != "progress"):
                called.append(builder)
                building(builder)

        options: dict[str, Any] = {
            "state_dir": self.folder / "state",
            "timeout": 10,
        }
        return fleetbuild.Fleet(self.inventory, **options).apply(plan, on_event=listen)

    def moves(self) -> list[str]:
        return [event.message for event in self.told if event.state == "warning"]


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    nodes = {name: {"hardware": "avx2"} for name in NODES}
    return Fleet(make_lab({"nodes": nodes}), tmp_path_factory.mktemp("failover"))


@pytest.fixture
def later() -> Iterator[ExitStack]:
    """What a test undoes at its end."""
    with ExitStack() as stack:
        yield stack


def builder_of(plan: Plan) -> str:
    return str(plan.groups[0].wheels[0].built_on)


def states(result: Result) -> dict[str, str]:
    return {node.node: node.state for node in result.nodes}


def served(fleet: Fleet, name: str) -> list[str]:
    """The nodes on which the release works."""
    python = f"/opt/fleetbuild/{name}/current/bin/python"
    return [
        node
        for node in NODES
        if fleet.lab.exec(node, f"{python} -c 'import {name}'", user="fleet").returncode == 0
    ]


def test_a_full_build_folder_lets_the_fallback_build(fleet: Fleet, later: ExitStack) -> None:
    plan = fleet.plan("full")
    builder, (fallback, _) = builder_of(plan), plan.groups[0].wheels[0].fallbacks
    later.callback(fleet.lab.exec, builder, "rm -r ~fleet/.cache/fleetbuild /dev/shm/fill")
    # After the check, which would not choose a builder that lacks space.
    result = fleet.apply(plan, lambda node: fleet.lab.exec(node, FULL), at="started")
    (wheel,) = result.wheels
    assert (wheel.state, wheel.built_on) == ("built", fallback), wheel
    assert [each.node for each in wheel.failed_on] == [builder]
    assert re.search(r"The disk is full|Its disk is full", wheel.failed_on[0].reason)
    assert fleet.moves() == [
        f"full was not built on {builder}: {wheel.failed_on[0].reason} {fallback} builds it."
    ]
    assert set(states(result).values()) == {"installed"}
    assert (result.exit_code, served(fleet, "full")) == (0, NODES)


def test_a_build_whose_processes_are_killed_is_built_by_the_fallback(fleet: Fleet) -> None:
    plan = fleet.plan("killed")
    result = fleet.apply(
        plan, lambda builder: fleet.lab.exec(builder, "pkill -9 -u fleet -f python")
    )
    (wheel,) = result.wheels
    assert (wheel.state, wheel.built_on) == ("built", plan.groups[0].wheels[0].fallbacks[0]), wheel
    assert [each.node for each in wheel.failed_on] == [builder_of(plan)]
    assert set(states(result).values()) == {"installed"}
    assert (result.exit_code, served(fleet, "killed")) == (0, NODES)


def test_a_builder_that_is_switched_off_is_unreachable_and_the_others_are_done(
    fleet: Fleet,
) -> None:
    plan = fleet.plan("gone")
    builder, (fallback, _) = builder_of(plan), plan.groups[0].wheels[0].fallbacks
    result = fleet.apply(plan, fleet.lab.stop)
    (wheel,) = result.wheels
    assert (wheel.state, wheel.built_on) == ("built", fallback), wheel
    assert re.match(r"(The connection was lost|No answer for \d+ s)", wheel.failed_on[0].reason)
    assert states(result) == dict.fromkeys(NODES, "installed") | {builder: "unreachable"}
    assert result.exit_code == 3
    fleet.lab.start(builder)
    again = fleet.apply(plan)
    assert (again.exit_code, states(again)[builder]) == (0, "installed")
    assert served(fleet, "gone") == NODES
