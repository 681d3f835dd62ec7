"""A builder whose processes are killed during the build: the next fallback builds in that apply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fleetbuild
from fleetbuild import Event
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

NODES = ["one", "three", "two"]


def test_a_build_whose_processes_are_killed_is_built_by_the_fallback(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab({"nodes": {name: {"hardware": "avx2"} for name in NODES}})
    fleet = fleetbuild.Fleet(lab.inventory, state_dir=tmp_path / "state", timeout=10)
    plan = fleet.plan([f"killed @ {source_tree(tmp_path / 'killed', setup='time.sleep(6)')}"])
    planned, called = plan.groups[0].wheels[0], list[str]()
    builder = str(planned.built_on)

    def listen(event: Event) -> None:
        at_work = (event.stage, event.state, event.node) == ("build", "progress", builder)
        # The look for an earlier build reports progress too, without a line of a log.
        if at_work and event.message and not called:
            called.append(builder)
            lab.exec(builder, "pkill -9 -u fleet -f python")

    result = fleet.apply(plan, on_event=listen)
    (wheel,) = result.wheels
    assert (wheel.state, wheel.built_on) == ("built", planned.fallbacks[0]), wheel
    assert [each.node for each in wheel.failed_on] == [builder]
    assert {node.state for node in result.nodes} == {"installed"}
    assert result.exit_code == 0
    for name in NODES:
        use = "/opt/fleetbuild/current/bin/python -c 'import killed'"
        lab.exec(name, use, user="fleet", check=True)
