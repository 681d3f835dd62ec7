"""Random schedules: applies and rollbacks by two controllers, with faults at random moments.

A seed decides everything but the machine's own timing. After each step the node serves one whole
release; at the end one apply completes. A seed that ever failed goes into FAILED and stays.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.faults.scene import Controller, Ended, Moment, Scene
from tests.faults.schedules import check, check_end, check_step, seeds
from tests.faults.striking import Fault
from tests.faults.test_matrix import MATRIX

QUICK = 3  # seeds of make test, as many as were seen to pass; make soak runs SEEDS
SEEDS = 300
STEPS = 3
FAILED: tuple[int, ...] = (20, 36, 167)
KINDS = (
    *(
        "none",
        "kill-controller",
        "terminate-controller",
        "kill-sshd",
        "stop-node",
        "disk-full-node",
    ),
    *("read-only", "clock-node", "power-loss", "slow-link"),
)
STAGES = ("probe", "transfer", "install", "verify", "switch")
IN_A_ROLLBACK = [Moment(task="Switch to the previous release")]


@dataclass(frozen=True)
class Step:
    """What one controller does, and the fault that strikes it meanwhile."""

    action: str  # second, third: apply; rollback; both: one controller each
    controller: int
    fault: str
    stage: str


def schedule(seed: int) -> list[Step]:
    chance = random.Random(seed)  # noqa: S311 (no secret)
    return [
        Step(
            chance.choice(["second", "third", "second", "third", "rollback", "both"]),
            chance.randrange(2),
            chance.choice(KINDS),
            chance.choice(STAGES),
        )
        for _ in range(STEPS)
    ]


def test_a_seed_gives_the_same_schedule_each_time() -> None:
    assert schedule(7) == schedule(7)
    assert {step.fault for seed in range(SEEDS) for step in schedule(seed)} == set(KINDS)


@pytest.mark.parametrize("seed", seeds({*range(SEEDS), *FAILED}, quick={*range(QUICK), *FAILED}))
def test_a_schedule_of_faults_leaves_a_whole_node(scene: Scene, seed: int) -> None:
    (node,) = scene.lab.nodes
    scene.reset(node)
    controllers = [scene.controller(node, "second", name) for name in ("one", "two")]
    done: list[str] = []
    for step in schedule(seed):
        done.append(f"seed {seed}: {step}")
        runs = _perform(scene, node, controllers, step)
        story = "\n".join([*done, *(run.story() for run in runs)])
        check_step(scene, runs, controllers, story)
    # A dead run's lease refuses the other controller for half an hour, and goes on for its own.
    holder = str(scene.look(node)["lease"].get("controller", ""))
    last = next((one for one in controllers if f":{one.state} (" in holder), controllers[0])
    scene.plan_again(node, "second", last)
    ended = last.run()
    assert ended.code == 0, "\n".join([*done, ended.story()])
    check(scene, node, controllers, "\n".join(done))
    check_end(scene, node, "\n".join(done))


def _perform(scene: Scene, node: str, controllers: list[Controller], step: Step) -> list[Ended]:
    one, other = controllers[step.controller], controllers[1 - step.controller]
    if step.action == "both":
        scene.plan_again(node, "second", one)
        scene.plan_again(node, "third", other)
        return _at_once(one.run, other.run)
    command = ("rollback", str(scene.lab.inventory), "--yes") if step.action == "rollback" else ()
    if not command:
        scene.plan_again(node, step.action, one)
    if step.fault == "none":
        return [one.run(command=command)]
    fault = Fault(scene, node, one)
    moment = [Moment(**each) for each in MATRIX["stages"][step.stage]["at"]]
    if step.action == "rollback":
        moment = IN_A_ROLLBACK
    try:
        return [one.run(
            timeout=10, at=moment, command=command,
            strike=lambda process: fault.strike(step.fault, process),
        )]  # fmt: skip
    finally:
        fault.close()


def _at_once(*works: Callable[[], Ended]) -> list[Ended]:
    ended: list[Ended] = []
    threads = [threading.Thread(target=lambda work=work: ended.append(work())) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == len(works)
    return ended
