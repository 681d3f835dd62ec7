"""Nodes that fall silent on the way: the others are done, and the next apply finishes the rest."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Config, Event, Inventory, Plan, Result
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

pytestmark = pytest.mark.long  # not yet seen to pass on a busy machine
TIMEOUT = 10  # so a silent node is given up after 20 s


class Fleet:
    """The default lab, and an apply in the middle of which a node falls silent."""

    def __init__(self, lab: Lab, state: Path, tree: Path) -> None:
        self.lab, self.state, self.tree = lab, state, tree
        self.inventory: Inventory = fleetbuild.read_inventory(lab.inventory)
        self.told: list[Event] = []

    def plan(self, release: str) -> Plan:
        fleet = fleetbuild.Fleet(
            self.inventory, config=Config(release=release), state_dir=self.state
        )
        return fleet.plan([f"tiny @ {self.tree}"])

    def apply(self, plan: Plan, when: Callable[[Event], str | None] = lambda _: None) -> Result:
        """`when` names the node that falls silent at an event, until the apply ends."""
        self.told.clear()
        with ExitStack() as silence:
            silenced: set[str] = set()

            def listen(event: Event) -> None:
                self.told.append(event)
                if (node := when(event)) and not silenced:
                    silenced.add(node)
                    silence.enter_context(self.lab.silent(node, link=plan.release == "link"))

            fleet = fleetbuild.Fleet(self.inventory, state_dir=self.state, timeout=TIMEOUT)
            return fleet.apply(plan, on_event=listen)


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("silence")
    tree = source_tree(folder / "tiny", setup="time.sleep(5)")
    return Fleet(make_lab(None), folder / "state", tree)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    until = time.monotonic() + 10
    while (left := leftovers()) and time.monotonic() < until:
        time.sleep(0.5)
    assert left == []


def leftovers() -> list[str]:
    """Processes of a run whose folder is gone, which means that it has ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts = [
                process.joinpath(name).read_bytes().decode() for name in ("cmdline", "environ")
            ]
        except (OSError, UnicodeDecodeError):
            continue
        run = re.search(r"(?:FLEETBUILD_RUN=|^ssh: )(/\S*?/fleetbuild-[^/\0]+)", "".join(texts))
        if run and not Path(run[1]).exists():
            found.append(texts[0].replace("\0", " "))
    return found


def states(result: Result) -> dict[str, str]:
    return {node.node: node.state for node in result.nodes}


def test_a_builder_that_stops_answering_is_replaced_by_its_fallback(fleet: Fleet) -> None:
    plan = fleet.plan("default")
    first = plan.groups[0]
    builder = str(first.wheels[0].built_on)

    def building(event: Event) -> str | None:
        on_start = (event.stage, event.state, event.node) == ("build", "progress", builder)
        return builder if on_start else None

    result = fleet.apply(plan, building)
    assert states(result) == {
        **{name: "installed" for group in plan.groups for name in group.nodes},
        builder: "unreachable",
    }
    assert result.exit_code == 3
    wheel = next(each for each in result.wheels if each.failed_on)
    assert (wheel.state, wheel.built_on) == ("built", first.wheels[0].fallbacks[0])
    assert re.match(r"No answer for \d+ s (while|at the step)", wheel.failed_on[0].reason)
    assert fleet.apply(plan).exit_code == 0


def test_a_canary_that_is_lost_before_verification_does_not_delay_other_groups(
    fleet: Fleet,
) -> None:
    plan = fleet.plan("link")
    canary = plan.groups[0].nodes[0]

    def copied(event: Event) -> str | None:
        # The next step makes, verifies and switches.
        about = (event.stage, event.state, event.node)
        return canary if about == ("distribute", "ok", canary) else None

    result = fleet.apply(plan, copied)
    assert result.exit_code == 3
    assert states(result).pop(canary) == "unreachable"
    assert sorted(states(result).values()) == ["installed"] * 5 + ["unreachable"]
    (waiting, *_) = [event for event in fleet.told if event.state == "waiting"]
    assert waiting.message.startswith(f"waiting for {canary} (")
    (lost,) = [event for event in fleet.told if event.state == "unreachable"]
    assert (lost.node, lost.stage) == (canary, "install")
    assert re.match(r"No answer for \d+ s while installing; nothing serves there", lost.message)
    again = fleet.apply(plan)
    assert (again.exit_code, states(again)[canary]) == (0, "installed")
