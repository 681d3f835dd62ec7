"""Every fault at every stage: the apply is done or the old release serves; the next is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.scene import (
    CODES,
    INSTALL_PATH,
    Controller,
    Ended,
    Moment,
    Scene,
    folders_of_dead_runs,
)
from tests.faults.striking import STRIKES, Fault

MATRIX: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "matrix.yml").read_text())
_ROOT = Path(__file__).parents[2]
_UNKNOWN = ("unreachable", None)  # results of a node that leave open what it serves


def combinations() -> Iterator[Any]:
    for fault, about in MATRIX["faults"].items():
        for stage in about.get("only", MATRIX["stages"]):
            name = f"{fault} {stage}"
            marks = () if name in MATRIX["sample"] else (pytest.mark.soak,)
            yield pytest.param(fault, stage, id=name.replace(" ", "-at-"), marks=marks)


def test_the_matrix_is_large_and_every_fault_can_strike() -> None:
    assert len(list(combinations())) >= 80
    assert MATRIX["faults"].keys() == STRIKES.keys()
    assert len(MATRIX["sample"]) >= 3
    roles = "".join(path.read_text() for path in _ROOT.glob("roles/*/tasks/*.yml"))
    known = set(re.findall(r"- name: (.+?)(?: #.*)?$", roles, re.MULTILINE))
    moments = [moment for stage in MATRIX["stages"].values() for moment in stage["at"]]
    assert {moment["task"] for moment in moments if "task" in moment} <= known


@pytest.mark.parametrize(("kind", "stage"), list(combinations()))
def test_no_node_is_left_broken(scene: Scene, kind: str, stage: str) -> None:
    (node,) = scene.lab.nodes
    about = MATRIX["stages"][stage]
    package = "built" if about.get("builds") else "second"
    scene.reset(node)
    labels = "nfd" if stage == "label" else "files"  # files: no playbook for labels
    controller = scene.controller(node, package, labels=labels)
    new = str(scene.plan(node, package).groups[0].release_id)
    fault = Fault(scene, node, controller)
    fault.prepare(kind)

    def strike(process: Any) -> None:
        if "until" in about:
            file = f"{INSTALL_PATH}/releases/{new}/{about['until']}"
            wait = f"timeout 60 sh -c 'until [ -e {file} ]; do sleep 0.02; done'"
            scene.lab.exec(node, wait, check=True)
        fault.strike(kind, process)

    try:
        moments = [Moment(**moment) for moment in about["at"]]
        ended = controller.run(timeout=10, at=moments, strike=strike)
        assert ended.struck, ended.story()
        fault.end()
        _check(scene, node, new, [ended, *fault.second], kind)
        again = controller.run()
        assert again.code == 0, again.story()
        _check_done(scene, node, new, controller)
    finally:
        fault.close()


def _check(scene: Scene, node: str, new: str, runs: list[Ended], kind: str) -> None:
    """Check how the runs ended, and that the node serves what they say."""
    serving = scene.check(node, [scene.first, new])
    for ended in runs:
        if ended.code == 1 and kind == "disk-full-controller":
            assert "The disk of this machine is full" in ended.said, ended.story()
        else:
            assert ended.code in CODES, ended.story()
        assert "Traceback" not in ended.said, ended.said
        if ended.code > 0:
            assert _has_sentence(ended), ended.story()
    if any(ended.code == 0 for ended in runs):
        assert serving == new, [ended.story() for ended in runs]
    elif all(ended.code in (5, 6, 7) for ended in runs):
        switched = any(_switched(ended) for ended in runs)
        assert switched or serving == scene.first, [ended.story() for ended in runs]


def _has_sentence(ended: Ended) -> bool:
    """Whether something says what happened and what to do."""
    told = [e for e in ended.events if e["state"] in ("failed", "unreachable") and e.get("message")]
    return bool(told or ended.said.strip())


def _switched(ended: Ended) -> bool:
    """Whether the run had begun to switch the node."""
    return any(event["stage"] in ("activate", "label") for event in ended.events)


def _check_done(scene: Scene, node: str, new: str, controller: Controller) -> None:
    scene.check(node, [new])
    found = scene.look(node)
    assert sorted(found["releases"]) == sorted([scene.first, new]), found
    assert found["staging"] == [], found
    assert not found["lease"].get("controller"), found
    controller.check()
    controller.check_nothing_runs()
    assert folders_of_dead_runs() == []
