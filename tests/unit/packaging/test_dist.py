"""What `make dist` builds can be installed: the wheel, the sdist and the collection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a Git checkout")
def test_no_file_is_a_symbolic_link() -> None:
    """Archives and Windows turn a link into a file that holds a path."""
    assert not [line for line in run("git", "ls-files", "-s").splitlines() if line[:6] == "120000"]
