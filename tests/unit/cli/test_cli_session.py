import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from fleetbuild import starter_files
from fleetbuild.cli.options import NodeOptions
from fleetbuild.cli.session import Session, read_secrets
from fleetbuild.cli.show import Output
from fleetbuild.cli.steps import as_planned
from fleetbuild.emit.emission import EmittedFiles
from fleetbuild.errors import Interrupted, LockedError, UsageError
from fleetbuild.files import write_atomically
from fleetbuild.probe.captures import save_captures
from fleetbuild.state import StateDir
from tests.factories.plans import make_plan


def end(work: Callable[[Session], None], state: Path, **options: bool) -> int:
    with pytest.raises(typer.Exit) as ended, Session(state_dir=state, **options) as run:
        work(run)
    return ended.value.exit_code


def raises(problem: BaseException) -> Callable[[Session], None]:
    def work(_: Session) -> None:
        raise problem

    return work


def test_a_session_ends_with_the_exit_code_that_was_set(tmp_path: Path) -> None:
    def work(run: Session) -> None:
        run.exit_code = 3

    assert end(lambda _: None, tmp_path) == 0
    assert end(work, tmp_path) == 3


def test_a_fleetbuild_error_is_shown_as_a_sentence_and_a_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(raises(LockedError("pid 1 holds\x1b[31m it", "wait")), tmp_path) == 8
    assert capsys.readouterr() == ("", "error: pid 1 holds it\nfix: wait\n")


@pytest.mark.parametrize(
    "problem",
    [UsageError("No a.", "Add a."), KeyboardInterrupt(), OSError(28, "Full"), ValueError()],
)
def test_an_error_is_a_document_for_programs(
    problem: BaseException, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = end(raises(problem), tmp_path, json=True)
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["exit_code"] == code > 0
    assert err == f"error: {error['message']}\nfix: {error['fix']}\n"


def test_an_error_is_the_last_event_where_programs_read_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(run: Session) -> None:
        run.out.text("{}\n")
        raise UsageError("No a.", "Add a.")

    assert end(work, tmp_path, json=True, events=True) == 2
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {}
    assert (last["stage"], last["state"]) == ("done", "failed")
    assert (last["message"], last["fix"]) == ("No a.", "Add a.")


@pytest.mark.parametrize("events", [True, False])
def test_a_full_standard_output_does_not_hide_the_error(
    events: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "write", _full)
    assert end(lambda run: run.out.text("{}"), tmp_path, json=True, events=events) == 1
    assert "full: standard output was not written." in capsys.readouterr().err


def test_an_error_behind_a_document_does_not_add_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(run: Session) -> None:
        run.out.document({})
        raise UsageError("No a.", "Add a.")

    assert end(work, tmp_path, json=True) == 2
    assert json.loads(capsys.readouterr().out) == {"format_version": "1.0"}


def test_an_unexpected_error_is_one_line_and_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(raises(ZeroDivisionError("by zero")), tmp_path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: unexpected ZeroDivisionError: by zero" in err
    assert "Traceback" not in err
    assert "ZeroDivisionError" in (tmp_path / "logs" / "traceback.txt").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone changes owners")
def test_an_unexpected_error_is_not_written_to_another_users_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, -1)
    assert end(raises(ZeroDivisionError("by zero")), tmp_path) == 1
    assert not (tmp_path / "logs").exists()


def test_a_user_without_a_home_can_name_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert end(lambda _: Path.home(), tmp_path) == 2
    assert "error: HOME is not set" in capsys.readouterr().err


def test_a_full_disk_on_the_controller_is_reported_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/state/result.json")
    assert end(raises(full), tmp_path) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert "The disk of this machine is full: /state/result.json was not written." in err
    assert "Free space (df -h /) or name another folder" in err
    assert "fault in fleetbuild" not in err


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


WRITES: dict[str, Callable[[Path], object]] = {
    "state directory": lambda at: StateDir(at / "state").create(),
    "captures": lambda at: save_captures(at / "captures", {"n1": {"uname": "Linux"}}),
    "files of emit": lambda at: EmittedFiles({"a.yml": "a"}).written(at / "k8s"),
    "starter files": lambda at: starter_files.init(at / "new"),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_has_one_exit_code_whatever_was_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "mkdir", _full)
    assert end(lambda _: WRITES[name](tmp_path), tmp_path) == 1
    assert "error: The disk of this machine is full: " in capsys.readouterr().err


def test_an_error_about_a_full_disk_names_the_file_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of an open file has no name."""
    monkeypatch.setattr(os, "fsync", _full)
    plan = tmp_path / "elsewhere" / "plan.json"
    assert end(lambda _: write_atomically(plan, "{}"), tmp_path / "state") == 1
    err = capsys.readouterr().err
    assert f"full: {plan} was not written." in err
    assert f"df -h {plan.parent}) or name another folder" in err


def test_a_full_disk_behind_standard_output_leaves_one_error_and_its_exit_code(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "fleetbuild", "store", "list", "--state-dir", str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    first, *rest = ended.stderr.splitlines()
    assert first.endswith("disk of this machine is full: standard output was not written.")
    assert [line[:4] for line in rest] == ["fix:"]


def test_init_on_a_full_disk_leaves_no_file_that_the_next_run_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def fill(path: Path, text: str, **options: str) -> int:
        write(path, text[: len(text) // 2], **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", fill)
        assert end(lambda _: starter_files.init(tmp_path / "new"), tmp_path) == 1
    assert all(file.exists() for file in starter_files.init(tmp_path / "new"))


def test_output_through_a_pipe_arrives_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python keeps 8 kB for a pipe, so that a build of an hour would be silent in a log."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        Output(json=True).text('{"stage":"build"}\n')
        assert os.read(reader, 100) == b'{"stage":"build"}\n'
        Output().say("building")
        assert os.read(reader, 100) == b"building\n"
    os.close(reader)


def test_verbose_shows_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end(raises(ZeroDivisionError("by zero")), tmp_path, verbose=True) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), Interrupted("Interrupted.", "Go on.")])
def test_an_interrupt_exits_with_130(
    problem: BaseException, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(raises(problem), tmp_path) == 130
    err = capsys.readouterr().err
    assert err.startswith("error: Interrupted.\nfix: ")


def test_asking_for_secrets_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="needs a terminal"):
        read_secrets(NodeOptions(ask_pass=True))


def test_secrets_are_asked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"<{prompt}>")
    vaults = {"vault_password_file": ["vault.txt"], "vault_id": ["dev@prompt", "prod@file"]}
    given = read_secrets(NodeOptions(ask_pass=True, ask_become_pass=True, **vaults))
    assert given.ask_pass == "<SSH password: >"
    assert given.become_pass == "<become password: >"
    assert given.vault_password_files == ("vault.txt",)
    assert given.vault_ids == ("prod@file",)
    assert given.vault_passwords == (("dev", "<vault password (dev): >"),)
    assert "password: >" not in repr(given)
    repeated = {"vault_password_file": ("vault.txt",), "vault_id": ("prod@file", "dev@prompt")}
    assert given.options == repeated


def test_a_run_takes_the_vaults_of_the_plan_unless_it_names_its_own() -> None:
    plan = make_plan(limit="gpu", options={"vault_password_file": ("vault.txt",)})
    planned = as_planned(NodeOptions(), plan)
    assert (planned.limit, planned.vault_password_file) == ("gpu", ["vault.txt"])
    own = as_planned(NodeOptions(vault_id=["dev@file"]), plan)
    assert (own.vault_password_file, own.vault_id) == (None, ["dev@file"])


def test_a_closed_pipe_does_not_stop_the_run(tmp_path: Path) -> None:
    program = (
        "from fleetbuild.cli.show import Output\n"
        "out = Output()\n"
        "for number in range(200_000): out.say(f'line {number}')\n"
        f"open({str(tmp_path / 'end')!r}, 'w').write('reached')\n"
    )
    script = f'{sys.executable} -c "$0" | head -n 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", script, program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "line 0\n", "")
    assert (tmp_path / "end").read_text() == "reached"


def test_a_folder_in_place_of_a_file_of_the_state_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "api-labels.json").mkdir()
    assert end(lambda _: StateDir(tmp_path).note_api_labels("a", "b"), tmp_path) == 2
    error = capsys.readouterr().err
    assert "api-labels.json cannot be used: Is a directory." in error
    assert "fault in fleetbuild" not in error
    assert "move it away" in error
