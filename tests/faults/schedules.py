"""What random schedules of faults share: seeds, and the checks after each step and at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest

from tests.faults.scene import CODES, Controller, Ended, Scene, folders_of_dead_runs


def seeds(numbers: Iterable[int], quick: Collection[int]) -> list[object]:
    """Return a parameter for each seed; the others run in make soak alone."""
    return [
        pytest.param(seed, marks=() if seed in quick else (pytest.mark.soak,))
        for seed in sorted(numbers)
    ]


def check_step(
    scene: Scene, runs: Sequence[Ended], controllers: list[Controller], story: str
) -> None:
    """Check that the runs of a step ended as runs do, and left each node whole."""
    for run in runs:
        assert run.code in CODES, story
        assert "Traceback" not in run.said, story
    for node in scene.lab.nodes:
        check(scene, node, controllers, story)


def check(scene: Scene, node: str, controllers: list[Controller], story: str) -> None:
    """Check that the node serves one whole release, and what the controllers keep and left."""
    found = scene.look(node)
    assert found["problem"] == "", f"{found}\n{story}"
    assert found["verified"], f"{found}\n{story}"
    assert found["current"] in found["releases"], f"{found}\n{story}"
    for controller in controllers:
        controller.check()
        controller.check_nothing_runs()
    assert folders_of_dead_runs() == [], story


def check_end(scene: Scene, node: str, story: str) -> None:
    """Check that the last apply installed `second`, and that nothing else is left of any run."""
    found = scene.look(node)
    assert found["packages"] == ["second"], f"{found}\n{story}"
    assert found["staging"] == [], f"{found}\n{story}"
    kept = {name.partition(".")[2] for name in found["kept"]}
    assert kept <= {*found["releases"]}, f"{found}\n{story}"
    assert not found["lease"].get("controller"), f"{found}\n{story}"
