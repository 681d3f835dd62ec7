import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.factories.command_line import run_fleetbuild

COMMANDS = (
    "init", "doctor", "facts", "plan", "apply", "status", "verify", "rollback", "explain", "audit",
    "remove", "check", "emit k8s", "emit labels", "emit nfd", "store list", "store gc",
    "store export", "store check", "store rm",
)  # fmt: skip
Run = Callable[..., Result]


def fleetbuild(*args: str) -> subprocess.CompletedProcess[str]:
    return run_fleetbuild(*args, here=Path(), code=None, COLUMNS="100")


def python(program: str, *args: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, check=True
    ).stdout


def test_help_loads_little_more_than_typer() -> None:
    """Modules are counted, since seconds tell how busy the machine is."""
    program = (
        "import sys; from fleetbuild.cli import main\ntry: main()\nfinally: print(len(sys.modules))"
    )
    ours = python(program, "--help").splitlines()
    assert ours[0].startswith("Usage: fleetbuild")
    least = "import importlib.metadata, sys, typer; print(len(sys.modules))"
    assert int(ours[-1]) < 1.5 * int(python(least))


def test_a_fleet_imports_what_a_call_needs() -> None:
    loaded = python("import fleetbuild.fleet, sys; print(*sys.modules)").split()
    for what in ("apply.stages", "emit", "plan.decide.group_fleet", "recipes", "store.wheels"):
        assert f"fleetbuild.{what}" not in loaded
    assert not {"iced_x86", "jinja2", "packaging.requirements"} & set(loaded)


def test_each_kind_of_emit_has_its_own_options(run: Run) -> None:
    assert "--node-class" in run("emit", "nodepools", "--help").stdout
    assert "--node-class" not in run("emit", "k8s", "--help").stdout


def test_the_help_tells_a_story_and_every_command_is_in_it(run: Run) -> None:
    text = run("--help").stdout
    first = text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in first.splitlines()] == [
        "init", "plan", "apply", "status", "rollback", "explain",
    ]  # fmt: skip
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert {command.split()[0] for command in COMMANDS} <= set(listed)
    assert text.index("\nExtensions:\n") < text.index("\n  revoke ")
    usual, _, rare = run("emit", "--help").stdout.partition("\nRarely needed:\n")
    kinds = usual.partition("\nCommands:\n")[2].splitlines()
    assert [line.split()[0] for line in kinds if line] == ["k8s", "labels"]
    assert {"\n  nfd ", "\n  kueue "} <= set(re.findall(r"\n  \w+ ", f"\n{rare}"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "--state-dir" in result.stdout


@pytest.mark.parametrize("command", ["", "emit", "store"])
def test_a_terminal_of_80_columns_shows_whole_summaries(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, *lines = run(*command.split(), "--help").stdout.splitlines()
    assert len(lines) > 10
    assert not [line for line in lines if line.endswith("...")]


def test_version_is_shown() -> None:
    done = fleetbuild("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("fleetbuild ")
