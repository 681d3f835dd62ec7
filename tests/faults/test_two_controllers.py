"""Two controllers, one node: the second is refused by name; it takes over if the first is dead."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.faults.scene import INSTALL_PATH, Controller, Ended, Moment, Scene

pytestmark = pytest.mark.soak
INSTALLING = [Moment(task="Make the release")]


@pytest.fixture
def node(scene: Scene) -> str:
    (name,) = scene.lab.nodes
    scene.reset(name)
    return name


def release(scene: Scene, node: str, package: str) -> str:
    return str(scene.plan(node, package).groups[0].release_id)


def failures(ended: Ended) -> list[dict[str, Any]]:
    return [event for event in ended.events if event["state"] == "failed" and event.get("node")]


def test_the_second_is_refused_while_the_first_installs(scene: Scene, node: str) -> None:
    """The first is held up: if it switched before the second probes, its plan would be stale."""
    first = scene.controller(node, "second", "one")
    other = scene.controller(node, "third", "two")
    refused: list[Ended] = []
    ended = _held_up(scene, node, first, lambda _: refused.append(other.run()))
    assert ended.code == 0, ended.story()
    (second,) = refused
    assert second.code == 6, second.story()
    (failure,) = failures(second)
    assert f":{first.state} (" in failure["message"]
    assert "is changing these releases" in failure["message"]
    assert "its lease ends in" in failure["fix"]
    assert scene.check(node, [release(scene, node, "second")])
    stale = other.run()  # its plan was made while `first` served
    assert stale.code == 9, stale.story()
    assert "Traceback" not in second.said + stale.said
    first.check()
    other.check()


def test_the_lease_of_a_dead_run_is_taken_over_and_said(scene: Scene, node: str) -> None:
    first = scene.controller(node, "second", "one")
    other = scene.controller(node, "third", "two")
    ended = first.run(at=INSTALLING, strike=lambda process: process.kill())
    assert ended.code == -9
    _wait_for_the_module(scene, node)
    blocked = other.run()
    assert blocked.code == 6, blocked.story()
    scene.lab.exec(node, _EXPIRE, check=True)
    taken = other.run()
    assert taken.code == 0, taken.story()
    (warning,) = [event for event in taken.events if "Took over" in event.get("message", "")]
    assert f":{first.state} (" in warning["message"]
    third = release(scene, node, "third")
    assert scene.check(node, [third])
    assert not scene.look(node)["lease"].get("controller")
    late = first.run()
    assert late.code == 9, late.story()
    assert scene.check(node, [third])


def test_a_run_that_lost_its_lease_does_not_switch(scene: Scene, node: str) -> None:
    """It is held up before it makes the release, for longer than its lease lasts."""
    first = scene.controller(node, "second", "one")
    other = scene.controller(node, "third", "two")
    taken: list[Ended] = []

    def overtake(_: object) -> None:
        scene.lab.exec(node, _EXPIRE, check=True)
        taken.append(other.run())

    ended = _held_up(scene, node, first, overtake)
    assert [each.code for each in taken] == [0], taken[0].story()
    assert ended.code in (6, 7), ended.story()
    assert scene.check(node, [release(scene, node, "third")])
    assert first.run().code == 9


def _held_up(scene: Scene, node: str, controller: Controller, overtake: Any) -> Ended:
    """Run a controller whose node stands still once it is reserved, while `overtake` runs."""
    stopped = "pkill -STOP -f '^sshd: fleet'"
    going = "pkill -CONT -f '^sshd: fleet'"

    def strike(process: object) -> None:
        scene.lab.exec(node, stopped)
        try:
            overtake(process)
        finally:
            scene.lab.exec(node, going)

    return controller.run(at=[Moment(task="Copy wheels")], strike=strike)


def _wait_for_the_module(scene: Scene, node: str) -> None:
    """Wait until the step that the dead run had started on the node has ended."""
    until = time.monotonic() + 120
    free = f"flock --nonblock {INSTALL_PATH}/.lock true"
    while scene.lab.exec(node, free).returncode != 0:
        assert time.monotonic() < until
        time.sleep(0.5)


_EXPIRE = """python3 - <<'END'
import json
path = "/opt/fleetbuild/.lease"
found = json.load(open(path))
found["until"] -= 100000
json.dump(found, open(path, "w"))
END"""
