"""Plan and apply on real SSH nodes, by the library alone, from the first build to the labels."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Event, Plan, Result
from fleetbuild.hardware.rungs import RUNGS
from tests.factories.files import make_project
from tests.lab import Lab, runnable

SEARCH = """
import hnswlib, numpy
vectors = numpy.float32(numpy.random.RandomState(1).rand(500, 64))
index = hnswlib.Index(space="l2", dim=64)
index.init_index(max_elements=500)
index.add_items(vectors)
labels, _ = index.knn_query(vectors, k=1)
print((labels[:, 0] == numpy.arange(500)).mean() > 0.9, hnswlib.__file__)
"""


@dataclass
class Fleet:
    """A lab, and the calls of the library on it."""

    lab: Lab
    state: Path
    told: list[Event] = field(default_factory=list)

    def plan(self) -> Plan:
        return fleetbuild.Fleet(self.lab.inventory, state_dir=self.state).plan(["hnswlib==0.8.0"])

    def apply(self, plan: Plan) -> Result:
        self.told.clear()
        fleet = fleetbuild.Fleet(self.lab.inventory, state_dir=self.state, timeout=15)
        return fleet.apply(plan, on_event=self.told.append)


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    if len(runnable()) < 3:
        pytest.skip("needs three kinds of node; this machine's CPU runs fewer rungs")
    return Fleet(make_lab(None), tmp_path_factory.mktemp("apply") / "state")


@pytest.fixture(scope="module")
def applied(fleet: Fleet) -> tuple[Plan, Result]:
    """The first apply, which builds everything."""
    plan = fleet.plan()
    return plan, fleet.apply(plan)


def states(result: Result) -> dict[str, str]:
    return {node.node: node.state for node in result.nodes}


def reasons(result: Result) -> str:
    return "\n".join(f"{node.node}: {node.state} {node.reason}" for node in result.nodes)


def test_three_kinds_of_node_get_three_wheels(fleet: Fleet, applied: tuple[Plan, Result]) -> None:
    plan, result = applied
    assert len(plan.groups) == 3
    assert plan.summary.wheels_to_build == 3
    assert result.exit_code == 0, reasons(result)
    assert [wheel.state for wheel in result.wheels] == ["built"] * 3
    assert set(states(result).values()) == {"installed"}
    assert len(result.nodes) == 6
    progress = [event for event in fleet.told if event.stage == "build" and event.group]
    assert {event.group for event in progress} == {group.name for group in plan.groups}


def test_each_wheel_uses_only_the_features_of_its_rung(applied: tuple[Plan, Result]) -> None:
    plan, result = applied
    targets = {wheel.artifact_key: wheel.target for g in plan.groups for wheel in g.wheels}
    for wheel in result.wheels:
        audit = fleetbuild.audit_wheel(Path(str(wheel.file)))
        target = targets[wheel.artifact_key]
        assert set(audit.features) <= set(target.features), wheel.wheel_version
        # It is not only allowed to use them: what sets the rung apart is really there.
        parent = RUNGS[target.isa].parent
        if target.isa in ("avx", "avx2", "avx512"):
            assert parent is not None
            assert set(audit.features) - parent.features, wheel.wheel_version


def test_each_node_serves_its_own_wheel_verified(
    fleet: Fleet, applied: tuple[Plan, Result]
) -> None:
    plan, result = applied
    files = {wheel.artifact_key: Path(str(wheel.file)) for wheel in result.wheels}
    for group in plan.groups:
        for name in group.nodes:
            current = json.loads(
                fleet.lab.exec(name, "cat /opt/fleetbuild/current/manifest.json", check=True).stdout
            )
            assert (current["id"], current["verified"]) == (group.release_id, True)
            said = fleet.lab.exec(
                name, f"/opt/fleetbuild/current/bin/python -c '{SEARCH}'", user="fleet", check=True
            ).stdout.split()
            assert said[0] == "True"
            installed = fleet.lab.exec(name, f"sha256sum {said[1]}", check=True).stdout.split()[0]
            assert installed == extension_sha256(files[str(group.wheels[0].artifact_key)])


def extension_sha256(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        return hashlib.sha256(archive.read(name)).hexdigest()


def test_the_manifests_are_for_the_three_groups(fleet: Fleet, applied: tuple[Plan, Result]) -> None:
    plan, result = applied
    texts = {Path(path).name: Path(path).read_text() for path in result.manifests}
    assert len([name for name in texts if name.startswith("deployment-")]) == 3
    assert all(name in texts["labels.sh"] for name in fleet.lab.nodes)
    emitted = fleetbuild.Fleet(state_dir=fleet.state).emit("k8s", plan=plan, result=result)
    assert emitted.files == texts


def source_tree(folder: Path, *, setup: str = "", code: str = "") -> Path:
    """A small extension that a generic recipe builds."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(make_project(folder.name))
    (folder / "setup.py").write_text(
        "import time, pathlib\n"
        "from setuptools import Extension, setup\n"
        "from setuptools.command.build_ext import build_ext\n"
        "class Build(build_ext):\n"
        "    def run(self):\n"
        f"        {setup or 'pass'}\n"
        "        super().run()\n"
        f'extension = Extension("{folder.name}", ["module.c"])\n'
        'setup(ext_modules=[extension], cmdclass={"build_ext": Build})\n'
    )
    (folder / "module.c").write_text(
        f"#include <Python.h>\n{code}\n"
        f'static struct PyModuleDef d = {{PyModuleDef_HEAD_INIT, "{folder.name}", 0, -1, 0}};\n'
        f"PyMODINIT_FUNC PyInit_{folder.name}(void) {{ return PyModule_Create(&d); }}\n"
    )
    return folder
