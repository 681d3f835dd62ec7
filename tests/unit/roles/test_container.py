"""A build in a container: how it is started, and the sentences where that fails."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import plugin

ID = "0123456789abcdef" * 4
BACKEND = """
import zipfile
def build_wheel(folder, *_):
    with zipfile.ZipFile(folder + "/a-1.0-py3-none-any.whl", "w") as wheel:
        about = "a-1.0.dist-info/"
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: a\\nVersion: 1.0\\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(about + "RECORD", "")
    return "a-1.0-py3-none-any.whl"
"""


@pytest.fixture(scope="session")
def container() -> ModuleType:
    return plugin("module_utils.builder.container")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a podman into PATH that notes how it is called, and does this for `run`."""
    folder, log = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()

    def make(run: str = "exit 0", inspect: str = "exit 0") -> Path:
        program = folder / "podman"
        program.write_text(
            f'#!/bin/bash\necho "$@" >> {log}\ncase $1 in image) {inspect} ;; run) {run} ;; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return log

    return make


@pytest.fixture
def boxed(build: Any) -> Any:
    """The build, in a container."""
    source = Path(build.at("in", "a.zip"))
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("backend.py", BACKEND)
        archive.writestr(
            "pyproject.toml",
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        )
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    build.params.update(
        container=ID, python="/usr/bin/python3", source="a.zip", source_sha256=sha256
    )
    return build


def test_a_container_gets_the_builds_folders_and_nothing_else(boxed: Any, engine: Any) -> None:
    log = engine(run="cat >/dev/null & exit 125")
    assert boxed.run()["state"] == "failed"
    inspect, removed, run, again = log.read_text().splitlines()
    assert inspect == "image inspect --format {{.Id}} " + ID
    name = removed.split()[-1]
    assert again == removed == f"rm --force {name}"
    words = run.split()
    for option, value in (
        ("--network", "none"), ("--pull", "never"), ("--cap-drop", "ALL"), ("--name", name),
        ("--security-opt", "no-new-privileges"), ("--workdir", boxed.dir),
    ):  # fmt: skip
        assert (option, value) in pairwise(words)
    assert "--read-only" in words
    mounts = sorted(word for word in words if word.startswith("--volume="))
    assert mounts == sorted(
        f"--volume={mount}"
        for mount in (
            f"{boxed.at('work')}:{boxed.dir}:rw",
            f"{boxed.at('in')}:/inputs:ro",
            f"{boxed.log}:/build.log:rw",
            f"{boxed.at('steps')}:/fleetbuild:ro",
        )
    )
    assert ID in words


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_container_that_does_not_start_is_quoted(boxed: Any, engine: Any, code: int) -> None:
    engine(run=f"echo Error: no such file: python3.9 >&2; exit {code}")
    said = boxed.run()
    assert said["reason"] == "The container did not start: Error: no such file: python3.9"
    assert said["fix"] == ["try-image"]
    assert said["kind"] == "input"  # the image: on every node the same


def test_a_killed_container_counts_as_a_killed_build(boxed: Any, engine: Any) -> None:
    engine(run="exit 137")
    said = boxed.run()
    assert said["reason"].startswith("The build was killed")
    assert (said["fix"], said["kind"]) == (["run-with-cache"], "machine")


def test_a_missing_image_and_a_missing_engine_are_sentences(
    boxed: Any, engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine(inspect="exit 125")
    said = boxed.run()
    assert said["reason"] == f"The image {ID} is not on this node."
    assert said["fix"] == ["pull-image", "podman"]
    monkeypatch.setenv("PATH", str(tmp_path))
    without = boxed.run()
    assert "no podman and no docker" in without["reason"]
    assert (said["kind"], without["kind"]) == ("machine", "machine")


def test_a_wheel_of_another_image_does_not_count(boxed: Any) -> None:
    os.makedirs(boxed.at("out"))
    Path(boxed.at("out", "a.whl")).write_bytes(b"")
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    status = {"state": "done", "file": "a.whl", "sha256": sha256, "isolation": "container"}
    boxed.params["isolation"] = "required"
    boxed.write_status(**status, container=ID)
    assert boxed.status()["state"] == "done"
    boxed.write_status(**status, container="f" * 64)
    assert boxed.status()["state"] == "absent"
    boxed.params["container"] = ""
    assert boxed.status()["state"] == "absent"


def test_the_modules_that_run_inside_need_nothing_else(
    container: ModuleType, tmp_path: Path
) -> None:
    container.lay_steps(str(tmp_path / "steps"))
    code = "import sys; sys.path.insert(0, sys.argv[1]); import builder.in_container"
    command = [sys.executable, "-I", "-B", "-c", code, str(tmp_path / "steps")]
    subprocess.run(command, check=True, cwd=tmp_path)


def test_the_steps_end_when_the_module_does(container: ModuleType, tmp_path: Path) -> None:
    container.lay_steps(str(tmp_path / "steps"))
    code = (
        "import sys, threading, time; sys.path.insert(0, sys.argv[1]); "
        "from builder.in_container import end_with_the_module as e; "
        "threading.Thread(target=e, daemon=True).start(); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", code, str(tmp_path / "steps")], stdin=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(60) == 1
