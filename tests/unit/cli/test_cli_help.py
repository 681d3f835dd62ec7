import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from typer.testing import Result

COMMANDS = (
    "init", "doctor", "facts", "plan", "apply", "status", "verify", "rollback", "explain", "audit",
    "emit", "store list", "store gc", "store export",
)  # fmt: skip
Run = Callable[..., Result]


def fleetbuild(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleetbuild", *args],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip


def test_help_answers_at_once() -> None:
    def seconds() -> float:
        began = time.monotonic()
        assert fleetbuild("--help").returncode == 0
        return time.monotonic() - began

    # About 0.15 s on an idle machine; the best of five, for a busy one.
    assert min(seconds() for _ in range(5)) < 0.6


def test_help_loads_nothing_heavy() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import fleetbuild.cli, sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert not {"pydantic", "rich", "ansible_runner", "fabric", "paramiko", "yaml"} & set(loaded)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "--state-dir" in result.stdout


def test_version() -> None:
    done = fleetbuild("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("fleetbuild ")


@pytest.mark.parametrize(
    "args",
    [
        ["pla", "x.yml"],
        ["plan"],
        ["plan", "x.yml", "--no-such-option"],
        ["facts", "x.yml", "--timeout", "soon"],
        ["facts", "x.yml", "--forks", "0"],
        ["emit", "nomad"],
    ],
)
def test_bad_use_exits_with_2_and_says_why(run: Run, args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "error" in result.stderr.lower()
    assert result.stdout == ""
