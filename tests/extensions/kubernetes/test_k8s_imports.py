"""The emitted commands and probes import modules by their names in the wheels."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import fleetbuild
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.models import Plan
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store
from tests.factories.files import make_wheel as wheel_file
from tests.factories.plans import make_group, make_plan, make_wheel

GROUP = "cpu-avx2-cp311"
# Package -> the files of its wheel, and the module that users import.
PACKAGES = {
    "pyyaml": ({"yaml/__init__.py": b"", "_yaml/__init__.py": b""}, "yaml"),
    "pillow": ({"PIL/__init__.py": b"__version__ = '11'"}, "PIL"),
    "scikit-learn": ({"sklearn/__init__.py": b""}, "sklearn"),
    "opencv-python-headless": ({"cv2/__init__.py": b""}, "cv2"),
}
MODULES = [module for _, module in PACKAGES.values()]


def plan_of() -> Plan:
    """A plan by recipes that name no module."""
    wheels = [
        make_wheel(package, "1.0+cpu.avx2", import_names=(), artifact_key=f"{number:032}")
        for number, package in enumerate(PACKAGES)
    ]
    return make_plan([make_group(("a",), wheels=tuple(wheels), dependencies=())])


@pytest.fixture
def built(tmp_path: Path) -> tuple[Plan, Path, Path]:
    """A plan, the state whose store holds its wheels, and a folder with their packages."""
    plan, state = plan_of(), StateDir(tmp_path / "state").create()
    store, site = Store(state.store), tmp_path / "site"
    for wheel in plan.groups[0].wheels:
        name = wheel.package.replace("-", "_")
        files = PACKAGES[wheel.package][0]
        path = wheel_file(tmp_path, name=name, version=wheel.wheel_version, files=files)
        store.add(path, wheel, built_on="a", seconds=1)
        with zipfile.ZipFile(path) as archive:
            archive.extractall(site)
    return plan, state.root, site


def container(state: Path, plan: Plan, kind: str, file: str, workload: str) -> dict[str, Any]:
    delivery = Delivery(kind=workload)  # type: ignore[arg-type]
    emitted = fleetbuild.Fleet(state_dir=state).emit(kind, plan=plan, delivery=delivery)
    assert emitted.warnings == ()
    (found,) = yaml.safe_load(emitted.files[file])["spec"]["template"]["spec"]["containers"]
    return dict(found)


def run(command: list[str], site: Path) -> str:
    """Run an emitted command on packages; `python3` is this Python."""
    assert command[0] == "python3"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    ran = subprocess.run(
        [sys.executable, *command[1:]], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout


def test_the_command_imports_the_modules_that_the_wheels_bring(
    built: tuple[Plan, Path, Path],
) -> None:
    plan, state, site = built
    made = container(state, plan, "k8s", f"job-{GROUP}.yaml", "job")
    said = run([*made["command"], *made["args"]], site)
    assert [line.split()[0] for line in said.splitlines()] == MODULES
    assert "PIL 11 " in said


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("k8s", f"deployment-{GROUP}.yaml"),
        ("kustomize", "base/workload.yaml"),
        ("kustomize", f"overlays/{GROUP}/patch.yaml"),
    ],
)
def test_the_probe_imports_them_too(built: tuple[Plan, Path, Path], kind: str, file: str) -> None:
    plan, state, site = built
    made = container(state, plan, kind, file, "deployment")
    assert made["args"] == MODULES
    said = run(made["readinessProbe"]["exec"]["command"], site)
    assert [line.split()[0] for line in said.splitlines()] == MODULES


@pytest.mark.parametrize("kind", ["k8s", "kustomize"])
def test_without_the_wheel_nothing_is_guessed(tmp_path: Path, kind: str) -> None:
    plan = plan_of()
    emitted = fleetbuild.Fleet(state_dir=tmp_path / "state").emit(kind, plan=plan)
    (sentence,) = emitted.warnings
    assert all(package in sentence for package in PACKAGES)
    for text in emitted.files.values():
        assert "- pyyaml" not in text
