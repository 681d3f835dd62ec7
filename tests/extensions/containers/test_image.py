"""What a node says about the image of build.container: engines, images, and lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleetbuild.extensions.containers.image import look_into_image, read_container
from fleetbuild.models import Container, Login, Node

IMAGE, ID = "example.org/old:1", "0123456789abcdef" * 4
HERE = Node(name="here", login=Login(connection="local", host="here"))
# Runs the first program of an image on the node itself.
ENGINE = """#!/bin/sh
echo "$@" >>{log}
case $1 in
  image) {inspect} ;;
  run) while [ "${{1#sha256:}}" != {id} ]; do shift; done; shift; {run} ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put an engine with this name into an otherwise plain PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in (
        "sh",
        "tail",
        "sleep",
        "cat",
        "getconf",
        "kill",
        "uname",
        "python3",
        "sed",
        "gcc",
    ):
        if found := shutil.which(program):
            (folder / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, *, inspect: str = f"echo {ID}", run: str = 'exec sh "$@"') -> Path:
        log = tmp_path / f"{name}.log"
        program = folder / name
        program.write_text(ENGINE.format(log=log, inspect=inspect, run=run, id=ID))
        program.chmod(0o755)
        return log

    return make


def look() -> Container:
    return look_into_image([HERE], IMAGE, timeout=30, forks=1)["here"]


def test_the_probe_runs_in_the_image_without_network(engine) -> None:
    log = engine("podman", inspect=f"echo sha256:{ID}")
    found = look()
    assert found.problem is None
    assert found.id == ID
    assert found.libc is not None
    assert found.pythons
    inspect, run = log.read_text().splitlines()
    assert inspect.endswith(IMAGE)
    assert "--network none" in run
    assert "--pull never" in run


def test_docker_is_asked_if_podman_lacks_the_image(engine) -> None:
    engine("podman", inspect="echo Error: image not known >&2; exit 125")
    log = engine("docker")
    assert look().id == ID
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.usefixtures("engine")
def test_a_node_without_an_engine_should_install_podman() -> None:
    found = look()
    assert found.problem == "has no podman and no docker, which build.container needs"
    assert "apt-get install podman" in (found.fix or "")


def test_a_missing_image_is_to_be_pulled(engine) -> None:
    engine("podman", inspect="echo Error: image not known >&2; exit 125")
    found = look()
    assert found.problem == f"has no image {IMAGE}"
    assert (found.fix or "").endswith(f"podman pull {IMAGE}")


def test_an_engine_that_refuses_is_quoted(engine) -> None:
    engine("docker", inspect="echo permission denied on the socket >&2; exit 1")
    assert look().problem == f"has no image {IMAGE} (permission denied on the socket)"


def test_an_image_that_does_not_start_is_quoted(engine) -> None:
    engine("podman", run="echo exec format error >&2; exit 126")
    found = look()
    assert found.problem == f"cannot look into the image {IMAGE} (exec format error)"
    assert "the node's architecture" in (found.fix or "")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "n engine sh",
        "n id " + "0" * 64,
        "n engine podman\nn id $(reboot)",
        "n engine podman\nn id " + "0" * 63,
        "n engine podman\nn id " + "0" * 64 + "\n" + "x" * 100_000,
    ],
)
def test_a_malformed_answer_is_a_problem(output: str) -> None:
    found = read_container(output, "n", IMAGE)
    assert found.problem
    assert found.id == ""
    assert len(found.problem) < 500
