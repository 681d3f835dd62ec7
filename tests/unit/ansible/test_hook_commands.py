"""The command of a hook: its environment, failures and time limit, and its end with the run."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from fleetbuild.ansible.hook_commands import run_commands
from fleetbuild.models.config import Hook
from fleetbuild.models.hooks import HookCall, HookFailure


def call(command: str, *nodes: str, timeout: int = 20) -> HookCall:
    return HookCall(
        name="before",
        hook=Hook(command=command, timeout=timeout),
        group="cpu-avx2-cp311",
        release="default",
        release_id="0123",
        nodes={node: f"k8s-{node}" for node in nodes or ("n1",)},
    )


def run(
    made: HookCall, logs: Path, stopping: threading.Event | None = None
) -> dict[str, HookFailure]:
    return run_commands(made, logs, (stopping or threading.Event()).is_set)


def test_a_command_gets_its_node_in_its_environment(tmp_path: Path) -> None:
    text = f'env > {tmp_path}/"$FLEETBUILD_NODE"'
    assert run(call(text, "n1", "n2"), tmp_path / "runs") == {}
    said = (tmp_path / "n2").read_text().splitlines()
    assert {
        "FLEETBUILD_HOOK=before", "FLEETBUILD_NODE=n2", "FLEETBUILD_KUBERNETES_NODE=k8s-n2",
        "FLEETBUILD_GROUP=cpu-avx2-cp311", "FLEETBUILD_RELEASE=default",
        "FLEETBUILD_RELEASE_ID=0123", f"PATH={os.environ['PATH']}",
    } <= set(said)  # fmt: skip
    assert list((tmp_path / "runs").iterdir()) == []  # a log is kept of failures alone


def test_a_name_is_not_part_of_the_shells_text(tmp_path: Path) -> None:
    odd = "n1; touch pwned"
    assert run(call(f'test "$FLEETBUILD_NODE" = "{odd}"', odd), tmp_path) == {}
    assert not Path("pwned").exists()


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    failures = run(
        call('test "$FLEETBUILD_NODE" = n2 || { echo "no \x1b[31mnode"; exit 3; }', "n1", "n2"),
        tmp_path,
    )
    assert list(failures) == ["n1"]
    assert failures["n1"].reason == "exit code 3: no node."
    log = Path(str(failures["n1"].log))
    assert "no" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_command_is_ended_with_its_children_at_its_time_limit(tmp_path: Path) -> None:
    began = time.monotonic()
    failures = run(call(f"sleep 60 & echo $! > {tmp_path}/child; wait", timeout=1), tmp_path)
    assert failures["n1"].reason == "it did not end within 1 s."
    assert time.monotonic() - began < 10
    child = int((tmp_path / "child").read_text())
    time.sleep(0.3)
    assert not is_running(child)


def test_a_run_that_stops_ends_its_commands(tmp_path: Path) -> None:
    stopping = threading.Event()
    threading.Timer(0.5, stopping.set).start()
    with pytest.raises(KeyboardInterrupt):
        run(call(f"echo $$ > {tmp_path}/shell; exec sleep 60", timeout=60), tmp_path, stopping)
    assert not is_running(int((tmp_path / "shell").read_text()))


def is_running(number: int) -> bool:
    try:
        status = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
