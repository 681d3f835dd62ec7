"""What `make dist` builds can be installed: the wheel, the sdist and the collection."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
pytestmark = pytest.mark.network


def run(*command: object, **variables: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--no-config", "--out-dir", folder, ROOT)
    collection = Path(sys.executable).with_name("ansible-galaxy")
    run(collection, "collection", "build", "--output-path", folder, PYTHONDONTWRITEBYTECODE="1")
    return folder


@pytest.mark.parametrize("pattern", ["fleetbuild-*.whl", "fleetbuild-[0-9]*.tar.gz"])
def test_a_package_is_installed_in_an_empty_environment(
    dist: Path, pattern: str, tmp_path: Path
) -> None:
    (package,) = dist.glob(pattern)
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, package)
    program = tmp_path / "env" / "bin" / "fleetbuild"
    assert "plan" in run(program, "--help")
    roles = "from fleetbuild.ansible import playbooks as p; print(p.__file__)"
    installed = Path(run(python, "-I", "-c", roles).strip()).parents[1]
    assert (installed / "_ansible" / "roles" / "build_wheel" / "tasks" / "main.yml").is_file()


def test_the_collection_is_installed_and_its_modules_are_documented(
    dist: Path, tmp_path: Path
) -> None:
    (collection,) = dist.glob("fleetbuild-core-*.tar.gz")
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    run(galaxy, "collection", "install", collection, "-p", tmp_path, "--offline")
    listed = run(
        galaxy.with_name("ansible-doc"), "-t", "module", "-l", "fleetbuild.core",
        ANSIBLE_COLLECTIONS_PATH=str(tmp_path),
    )  # fmt: skip
    assert "fleetbuild.core.release" in listed


def test_the_bill_of_materials_has_what_the_image_installs(dist: Path, tmp_path: Path) -> None:
    shutil.copytree(dist, tmp_path / "dist")
    for name in (".ci/lock", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    run(tmp_path / ".ci" / "lock")
    bill = json.loads((tmp_path / "dist" / "fleetbuild.cdx.json").read_text("utf-8"))
    (wheel,) = dist.glob("*.whl")
    main = bill["metadata"]["component"]
    assert wheel.name.startswith(f"{main['name']}-{main['version']}-")
    parts = {(part["name"], part["version"]) for part in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {Requirement(line).name for line in project["dependencies"]} <= dict(parts).keys()
    lock = (tmp_path / ".cache" / "release" / "requirements.txt").read_text("utf-8")
    locked = re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    assert locked
    assert set(locked) <= parts  # a package may have a version for each Python
    assert lock.count("--hash=sha256:") >= len(locked)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a Git checkout")
def test_no_file_is_a_symbolic_link() -> None:
    """Archives and Windows turn a link into a file that holds a path."""
    assert not [line for line in run("git", "ls-files", "-s").splitlines() if line[:6] == "120000"]
