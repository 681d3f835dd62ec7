"""Plan and apply on real SSH nodes, by the library alone, from the first build to the last label.

The tests of this module go on from each other's nodes, in order, and say so where they need to.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Config, Event, Facts, Inventory, Plan, Result
from fleetbuild.hardware.rungs import RUNGS
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
    inventory: Inventory
    told: list[Event] = field(default_factory=list)

    def facts(self, inventory: Inventory | None = None) -> dict[str, Facts]:
        return fleetbuild.Fleet(inventory or self.inventory, state_dir=self.state).probe()

    def plan(
        self,
        *packages: str,
        limit: str | None = None,
        facts: Mapping[str, Facts] | None = None,
        release: str = "default",
    ) -> Plan:
        fleet = fleetbuild.Fleet(
            self.limited(limit), config=Config(release=release), state_dir=self.state
        )
        return fleet.plan(packages or ["hnswlib==0.8.0"], facts=facts)

    def apply(self, plan: Plan) -> Result:
        self.told.clear()
        inventory = self.limited(plan.limit)
        fleet = fleetbuild.Fleet(inventory, state_dir=self.state, timeout=15)
        return fleet.apply(plan, on_event=self.told.append)

    def limited(self, limit: str | None) -> Inventory:
        if limit is None:
            return self.inventory
        return fleetbuild.read_inventory(self.lab.inventory, limit=limit)

    def runs(self) -> int:
        """How many playbooks were started so far."""
        return len(list((self.state / "runs").glob("*")))


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    if len(runnable()) < 3:
        pytest.skip("needs three kinds of node; this machine's CPU runs fewer rungs")
    lab = make_lab(None)
    state = tmp_path_factory.mktemp("apply") / "state"
    return Fleet(lab, state, fleetbuild.read_inventory(lab.inventory))


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


def test_a_second_apply_does_nothing_and_starts_no_playbook(
    fleet: Fleet, applied: tuple[Plan, Result]
) -> None:
    plan, _ = applied
    before = fleet.runs()
    result = fleet.apply(plan)
    assert fleet.runs() == before
    assert not result.changed
    assert set(states(result).values()) == {"up_to_date"}
    again = fleet.plan()
    assert again.summary.nodes_to_change == again.summary.wheels_to_build == 0
    assert fleet.apply(again).exit_code == 0
    assert fleet.runs() == before


def test_verify_passes_and_status_shows_no_drift_after_an_apply(
    fleet: Fleet, applied: tuple[Plan, Result]
) -> None:
    fleetbuild.save_plan(applied[0], fleet.state / "plan.json")
    calls = fleetbuild.Fleet(fleet.inventory, state_dir=fleet.state)
    result = calls.verify()
    assert set(states(result).values()) == {"verified"}, reasons(result)
    for offline in (False, True):
        found = calls.status(offline=offline)
        assert {node.drift for node in found.values()} == {"none"}
        assert all(node.probed for node in found.values())


def test_an_unreachable_node_is_skipped_and_installed_by_the_next_apply(
    fleet: Fleet, applied: tuple[Plan, Result]
) -> None:
    away = applied[0].groups[0].nodes[-1]
    plan = fleet.plan(release="second")
    assert plan.summary.wheels_reused == 3
    fleet.lab.stop(away)
    try:
        result = fleet.apply(plan)
    finally:
        fleet.lab.start(away)
    assert result.exit_code == 3, reasons(result)
    assert states(result).pop(away) == "unreachable"
    assert sorted(states(result).values()) == ["installed"] * 5 + ["unreachable"]
    caught_up = fleet.apply(plan)
    assert caught_up.exit_code == 0, reasons(caught_up)
    assert states(caught_up)[away] == "installed"
    assert sorted(states(caught_up).values()) == ["installed"] + ["up_to_date"] * 5


def source_tree(folder: Path, *, setup: str = "", code: str = "") -> Path:
    """A small extension that a generic recipe builds."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "{folder.name}"\nversion = "1.0"\n'
    )
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


def test_a_build_that_fails_stops_its_group_alone(fleet: Fleet, tmp_path: Path) -> None:
    """The code does not compile where the compiler may use AVX2."""
    tree = source_tree(tmp_path / "halfbroken", code="#ifdef __AVX2__\n#error no AVX2\n#endif")
    facts = fleet.facts()
    broken = {name for name, known in facts.items() if "avx2" in known.features}
    result = fleet.apply(fleet.plan(f"halfbroken @ {tree}", release="broken", facts=facts))
    assert result.exit_code == 5, reasons(result)
    assert {name for name, state in states(result).items() if state == "build_failed"} == broken
    assert {state for name, state in states(result).items() if name not in broken} == {"installed"}
    failed = next(wheel for wheel in result.wheels if wheel.state == "failed")
    assert failed.reason
    assert failed.fix
    assert "no AVX2" in Path(str(failed.log)).read_text()


APPLY = """
import sys, fleetbuild
plan = fleetbuild.read_plan(sys.argv[1])
fleet = fleetbuild.Fleet(
    plan.inventory, limit=plan.limit, state_dir=sys.argv[2],
)
def tell(event):
    print(event.stage, event.state, event.message, flush=True)
try:
    result = fleet.apply(plan, on_event=tell)
except fleetbuild.FleetbuildError as error:
    print(error.message, error.fix, flush=True)
    sys.exit(error.exit_code)
sys.exit(result.exit_code)
"""


def test_ctrl_c_in_a_build_and_again_ends_in_the_same_state(fleet: Fleet, tmp_path: Path) -> None:
    """The build goes on alone, and the next run takes it up; it is not on_start again."""
    once = 'print("one build of slow", flush=True); time.sleep(15)'
    tree = source_tree(tmp_path / "slow", setup=once)
    group = fleet.plan().groups[0]
    plan = fleet.plan(f"slow @ {tree}", limit=",".join(group.nodes), release="slow")
    fleetbuild.save_plan(plan, tmp_path / "plan.json")
    command = [sys.executable, "-c", APPLY, str(tmp_path / "plan.json"), str(fleet.state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout
        for line in first.stdout:
            if line.startswith("build progress"):
                first.send_signal(signal.SIGINT)
                break
        rest = first.stdout.read()
    assert first.returncode == 130, rest
    assert "Traceback" not in rest
    result = fleet.apply(plan)
    assert result.exit_code == 0, reasons(result)
    assert set(states(result).values()) == {"installed"}
    wheel = plan.groups[0].wheels[0]
    log = f"cat ~fleet/.cache/fleetbuild/builds/{wheel.artifact_key}/build.log"
    said = fleet.lab.exec(str(wheel.built_on), log, check=True).stdout
    assert said.count("one build of slow") == 1, said
    assert set(states(fleet.apply(plan)).values()) == {"up_to_date"}


def test_rollback_restores_the_previous_release(fleet: Fleet, tmp_path: Path) -> None:
    (name,) = fleet.plan().groups[0].nodes[:1]
    plan = fleet.plan(f"small @ {source_tree(tmp_path / 'small')}", limit=name)
    before = plan.nodes[name].current
    assert fleet.apply(plan).exit_code == 0
    calls = fleetbuild.Fleet(fleet.limited(name), state_dir=fleet.state)
    back = calls.rollback()
    assert states(back) == {name: "rolled_back"}, reasons(back)
    found = calls.status()[name]
    assert (found.release_id, found.drift) == (before, "none")
