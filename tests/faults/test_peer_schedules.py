"""Random schedules of three nodes that give files to each other, with faults while they do.

A seed decides the faults, and whether the node that the controller sends to is struck, or one that
takes its files from another. After each step each node serves one whole release; at the end one
apply completes, and no server of an earlier run keeps its port.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from tests.faults.scene import Moment, Scene
from tests.faults.schedules import check, check_end, check_step, seeds
from tests.faults.striking import Fault, Process

QUICK = 1  # the seed of make test; make soak runs SEEDS
SEEDS = 30
STEPS = 2
KINDS = (
    "kill-program", "kill-sshd", "stop-node", "power-loss", "disk-full-node", "kill-controller",
)  # fmt: skip
_PROGRAMS = "grep -lazP '^-I\\0-$' /proc/[0-9]*/cmdline | tr -dc '0-9\\n' | xargs -r kill -9"


@dataclass(frozen=True)
class Step:
    """An apply, and the fault that strikes a node some seconds after the copies have begun."""

    package: str
    fault: str
    strikes_first: bool
    delay: float


def schedule(seed: int) -> list[Step]:
    chance = random.Random(seed)  # noqa: S311 (no secret)
    return [
        Step(package, chance.choice(KINDS), chance.random() < 0.5, chance.uniform(0, 4))
        for package in ("second", "third")[:STEPS]
    ]


def test_seeds_strike_both_ends_by_every_fault() -> None:
    steps = [step for seed in range(SEEDS) for step in schedule(seed)]
    assert {(step.fault, step.strikes_first) for step in steps} == {
        (kind, first) for kind in KINDS for first in (True, False)
    }


@pytest.mark.parametrize("seed", seeds(range(SEEDS), quick={QUICK}))
def test_a_schedule_of_faults_leaves_whole_nodes(peers: Scene, seed: int) -> None:
    fleet, done = ",".join(peers.lab.nodes), [f"seed {seed}"]
    for node in peers.lab.nodes:
        peers.reset(node)
    controller = peers.controller(fleet, "second")
    for step in schedule(seed):
        peers.plan_again(fleet, step.package, controller)
        faults: list[Fault] = []

        def strike(process: Process, step: Step = step, faults: list[Fault] = faults) -> None:
            faults.append(Fault(peers, _node(peers, step.strikes_first), controller))
            time.sleep(step.delay)
            if step.fault == "kill-program":
                peers.lab.exec(faults[0].node, _PROGRAMS)
            else:
                faults[0].strike(step.fault, process)

        try:
            ended = controller.run(timeout=10, at=[Moment(task="Copy wheels")], strike=strike)
        finally:
            for fault in faults:
                fault.close()
        done.append(f"{step} on {[fault.node for fault in faults]}: {ended.story()}")
        story = "\n".join(done)
        assert ended.struck, story
        check_step(peers, [ended], [controller], story)
    peers.plan_again(fleet, "second", controller)
    ended = controller.run()
    story = "\n".join([*done, ended.story()])
    assert ended.code == 0, story
    # A program that outlives its connection still gives files, so in that step it has the port.
    others = [each for each in done if "fault='kill-sshd'" not in each]
    assert "uses port" not in "\n".join([*others, ended.story()]), story
    for node in peers.lab.nodes:
        check(peers, node, [controller], story)
        check_end(peers, node, story)


def _node(peers: Scene, first: bool) -> str:
    """Return the node that the controller sends to, or another one."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for node in peers.lab.nodes:
            if peers.lab.exec(node, "pgrep -f '[s]ftp-server'").stdout:
                return node if first else next(one for one in peers.lab.nodes if one != node)
    raise AssertionError("The controller sent to no node.")
