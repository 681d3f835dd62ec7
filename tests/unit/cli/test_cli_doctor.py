import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from fleetbuild.cli import checks

Run = Callable[..., Result]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """Programs by name with their exit status; None is not there."""
    there: dict[str, int | None] = dict.fromkeys(("ssh", "ansible-playbook", "uv", "sshpass"), 0)

    def which(name: str, path: str | None = None) -> str | None:
        del path
        return None if there[name] is None else f"/bin/{name}"

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        status = there[Path(command[0]).name] or 0
        return subprocess.CompletedProcess(command, status, "one 1.0\n", "broken\n")

    monkeypatch.setattr(checks.shutil, "which", which)
    monkeypatch.setattr(checks.subprocess, "run", run)
    return there


def states(here: Path) -> dict[str, str]:
    return {finding.what: finding.state for finding in checks.examine(here / "state")}


def test_a_fit_controller(run: Run, programs: dict[str, int | None]) -> None:
    del programs
    result = run("doctor")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("This controller is fit")


def test_what_is_missing_fails_with_a_fix(run: Run, programs: dict[str, int | None]) -> None:
    programs["ssh"] = None
    result = run("doctor", "--json")
    assert result.exit_code == 2
    found = {check["what"]: check for check in json.loads(result.stdout)["checks"]}
    assert found["ssh"]["state"] == "fail"
    assert "openssh-client" in found["ssh"]["fix"]


def test_broken_and_optional_programs(here: Path, programs: dict[str, int | None]) -> None:
    programs.update({"ansible-playbook": 1, "sshpass": None, "uv": 1})
    found = states(here)
    assert (found["ansible"], found["sshpass"], found["uv"]) == ("fail", "warn", "fail")
    assert found["package index"] == "warn"
    programs["uv"] = None
    assert states(here)["package index"] == "warn"


def test_a_state_directory_that_cannot_be_written(
    here: Path, programs: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    del programs
    monkeypatch.setattr(checks.os, "access", lambda *_: False)
    monkeypatch.setattr(checks, "NEEDED_DISK", 1e18)
    found = states(here)
    assert (found["state directory"], found["disk"]) == ("fail", "warn")
