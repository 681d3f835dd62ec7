import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from fleetbuild import doctor

Run = Callable[..., Result]
Programs = dict[str, int | Exception | None]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Programs by name with their exit status; None is not there."""
    there: Programs = dict.fromkeys(("ssh", "ansible-playbook", "uv", "sshpass"), 0)

    def which(name: str, path: str | None = None) -> str | None:
        del path
        name = Path(name).name
        return None if there[name] is None else f"/bin/{name}"

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        status = there[Path(command[0]).name]
        if not isinstance(status, int):
            raise status or AssertionError
        return subprocess.CompletedProcess(command, status, "one 1.0\n", "broken\n")

    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", run)
    return there


def states(here: Path) -> dict[str, str]:
    return {finding.what: finding.state for finding in doctor.examine(here / "state")}


def test_a_complete_controller_passes_every_check(run: Run, programs: Programs) -> None:
    del programs
    result = run("doctor")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("This controller is fit")


def test_a_missing_program_fails_with_a_fix(run: Run, programs: Programs) -> None:
    programs["ssh"] = None
    result = run("doctor", "--json")
    assert result.exit_code == 2
    found = {check["what"]: check for check in json.loads(result.stdout)["checks"]}
    assert found["ssh"]["state"] == "fail"
    assert "openssh-client" in found["ssh"]["fix"]


def test_a_broken_program_fails_and_an_optional_one_warns(here: Path, programs: Programs) -> None:
    programs.update({"ansible-playbook": 1, "sshpass": None, "uv": 1})
    found = states(here)
    assert (found["ansible"], found["sshpass"], found["uv"]) == ("fail", "warn", "fail")
    assert found["package index"] == "warn"


def test_an_unwritable_state_directory_fails(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for root, which may write everywhere, by the permissions."""
    del programs
    monkeypatch.setattr(doctor, "NEEDED_DISK", 1e18)
    found = {each.what: each.state for each in doctor.examine(Path("/proc/fleetbuild"))}
    assert (found["state directory"], found["disk"]) == ("fail", "warn")


def test_an_impossible_directory_name_fails(here: Path, programs: Programs) -> None:
    del programs
    found = {each.what: each.state for each in doctor.examine(here / ("n" * 300) / "state")}
    assert found["state directory"] == "fail"


def test_a_program_that_hangs_or_does_not_start_fails(run: Run, programs: Programs) -> None:
    programs["ansible-playbook"] = subprocess.TimeoutExpired("ansible-playbook", 60)
    programs["ssh"] = OSError(8, "Exec format error")
    programs["uv"] = subprocess.TimeoutExpired("uv", 60)
    result = run("doctor", "--json")
    assert result.exit_code == 2
    found = {check["what"]: check for check in json.loads(result.stdout)["checks"]}
    assert (
        found["ansible"]["found"]
        == "/bin/ansible-playbook: no answer within 60 s; this machine may be busy"
    )
    assert found["ssh"]["found"] == "/bin/ssh: Exec format error"
    assert found["package index"]["state"] == "warn"
    assert found["package index"]["found"] == "does not answer: timed out after 60 s"
    assert "named in fleetbuild.yml is only tried by plan" in found["package index"]["fix"]


def test_the_index_check_uses_the_settings_of_plan(
    here: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    del programs
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    (here / "pip.conf").write_text("[global]\nindex-url = https://me:secret@pypi.corp/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(here / "pip.conf"))
    monkeypatch.setenv("UV_CONFIG_FILE", str(here / "uv.toml"))

    def refused(
        command: list[str], env: dict[str, str] | None = None, **_: Any
    ) -> subprocess.CompletedProcess[str]:
        asked = " ".join(value for name, value in (env or {}).items() if name.startswith("UV_"))
        return subprocess.CompletedProcess(command, 1, "", f"error: {asked}\n")

    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", refused)
    found = doctor.examine(here / "state")[-1]
    assert "pypi.corp/simple" in found.found
    assert "secret" not in found.found


def test_a_newer_ansible_than_any_that_was_tried_warns(
    here: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    del programs
    said = "ansible-playbook [core 2.40.1]\n"
    done = subprocess.CompletedProcess(["x"], 0, said, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    (found,) = (each for each in doctor.examine(here / "state") if each.what == "ansible")
    assert (found.state, "2.40.1 is newer" in found.fix) == ("warn", True)
