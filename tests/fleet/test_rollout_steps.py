"""Two groups that take their steps together, while a node of one group hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fleetbuild
from fleetbuild import Config, Event
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

# A module whose import takes as long as its node says.
CODE = """
#include <unistd.h>
__attribute__((constructor)) static void wait_here(void) {
  while (!access("/etc/hangs", F_OK)) usleep(200000);
}
"""
GROUPS = {"one": ["one-1", "one-2"], "two": ["two-1", "two-2", "two-3"]}
HARDWARE = {"one": "avx", "two": "avx2"}


def test_the_others_of_a_step_serve_while_a_node_hangs_and_the_next_step_follows(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    nodes = {node: {"hardware": HARDWARE[name]} for name in GROUPS for node in GROUPS[name]}
    lab, active, waves = make_lab({"nodes": nodes}), list[str](), list[Event]()

    def note(event: Event) -> None:
        if (event.stage, event.state) == ("install", "started"):
            if not waves:
                lab.exec("one-1", "touch /etc/hangs", check=True)
            waves.append(event)
        if (event.stage, event.state) == ("activate", "ok"):
            active.append(str(event.node))
            if len(active) == 1:
                lab.exec("one-1", "rm /etc/hangs", check=True)

    config = Config.model_validate({"rollout": {"canary": 1, "serial": 1}})
    fleet = fleetbuild.Fleet(lab.inventory, config=config, state_dir=tmp_path / "state")
    plan = fleet.plan([f"tiny @ {source_tree(tmp_path / 'tiny', code=CODE)}"])
    assert sorted(list(group.nodes) for group in plan.groups) == [*GROUPS.values()]
    result = fleet.apply(plan, on_event=note)
    assert {node.state for node in result.nodes} == {"installed"}, result
    assert active[:2] == ["two-1", "one-1"]
    logs = (tmp_path / "state/runs").glob("*-install*.log")
    played = [sorted(name for name in nodes if f"[{name}]" in log.read_text()) for log in logs]
    assert sorted(played) == [["one-1", "two-1"], ["one-2", "two-2"], ["two-3"]]
