"""Files go to a node and come from it by calls that Ansible offers; what arrives is compared."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from tests.factories.role_modules import plugin

transfer = plugin("action.transfer")
ABOUT = {"inventory_hostname": "h1"}


class Connection:
    """A connection to this machine that counts fetched files."""

    transport, become, _shell = "local", None, SimpleNamespace(tmpdir="/x")

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def fetch_file(self, there: str, here: str) -> None:
        self.fetched.append(os.path.basename(there))
        if not os.path.exists(there):
            raise AnsibleError(f"{there} does not exist")
        shutil.copyfile(there, here)


def action(**arguments: Any) -> Any:
    made: Any = transfer.ActionModule.__new__(transfer.ActionModule)
    made._task = SimpleNamespace(
        args=arguments, check_mode=False, async_val=0, action="fleetbuild.core.transfer"
    )
    made._connection = Connection()
    made._transfer_file = shutil.copyfile
    return made


def fetch(tmp_path: Path, *files: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    (tmp_path / "node").mkdir(exist_ok=True)
    made = action(folder=str(tmp_path / "node"), fetch=list(files), dest=str(tmp_path / "here"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        return made.run(None, ABOUT), made._connection.fetched
    finally:  # at once: pytest writes to a file, too
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_fetched_and_a_second_time_only_if_its_hash_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    for name in ("a.whl", "build.log"):
        (tmp_path / "node" / name).write_text(name)
    wheel = {"path": "a.whl", "sha256": hashlib.sha256(b"a.whl").hexdigest()}
    result, fetched = fetch(tmp_path, wheel, {"path": "build.log"})
    assert (result, fetched) == ({"changed": True, "lacking": []}, ["a.whl", "build.log"])
    assert (tmp_path / "here" / "a.whl").read_text() == "a.whl"
    result, fetched = fetch(tmp_path, wheel, {"path": "build.log"})
    assert (result, fetched) == ({"changed": False, "lacking": []}, ["build.log"])


def test_a_file_with_another_hash_fails(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "a.whl").write_text("another")
    result, _ = fetch(tmp_path, {"path": "a.whl", "sha256": "0" * 64})
    assert result["failed"]
    assert result["msg"].endswith("a.whl arrived damaged: its sha256 differs.")


def test_an_optional_file_that_is_missing_fails_nothing_and_another_does(tmp_path: Path) -> None:
    missing = {"path": "build.log", "optional": True}
    assert fetch(tmp_path, missing)[0] == {"changed": False, "lacking": ["build.log"]}
    result, _ = fetch(tmp_path, {"path": "a.whl"})
    assert "was not fetched" in result["msg"]


def test_a_lost_connection_does_not_count_as_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    made = action(folder="/node", fetch=[{"path": "x.log", "optional": True}], dest=str(tmp_path))

    def lose(*_: str) -> None:
        raise AnsibleConnectionFailure("lost")

    made._connection.fetch_file = lose
    with pytest.raises(AnsibleConnectionFailure):
        made.run(None, ABOUT)


@pytest.mark.parametrize("path", ["../x", "/etc/x y", "a\n!sh", "-x"])
def test_a_file_without_a_plain_path_is_not_fetched(tmp_path: Path, path: str) -> None:
    result, fetched = fetch(tmp_path, {"path": path})
    assert (result["refused"], fetched) == (True, [])


def test_more_than_a_wheel_may_have_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(transfer._LARGEST, ".log", 1000)
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "build.log").write_bytes(bytes(5000))
    result, _ = fetch(tmp_path, {"path": "build.log", "optional": True})
    assert result["lacking"] == ["build.log"]
    assert (tmp_path / "here" / "build.log").stat().st_size <= 1000


def test_a_lower_limit_of_this_machine_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    limits = SimpleNamespace(RLIMIT_FSIZE=1, RLIM_INFINITY=-1, getrlimit=lambda _: (1000, 1000))
    limits.setrlimit = lambda _, both: asked.append(both)
    monkeypatch.setattr(transfer, "resource", limits)
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "a.whl").write_text("a wheel")
    assert fetch(tmp_path, {"path": "a.whl"})[0]["changed"]
    assert asked == [(1000, 1000)]


def test_another_user_copies_what_the_user_who_logs_in_got(tmp_path: Path) -> None:
    own, there = tmp_path / "own", tmp_path / "there"
    (there / "ab").mkdir(parents=True)
    own.mkdir()
    (tmp_path / "a.whl").write_text("wheel")
    made = action(folder=str(there), files=[{"path": str(tmp_path / "a.whl"), "sha256": "ab"}])
    ran: list[bool] = []

    def run(command: str, sudoable: bool) -> dict[str, Any]:
        ran.append(sudoable)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    made._connection.become, made.get_become_option = object(), lambda _: "somebody"
    made._make_tmp_path, made._low_level_execute_command = lambda: f"{own}/", run
    assert made.run(None, ABOUT) == {"changed": True}
    assert (there / "ab" / "a.whl").read_text() == "wheel"
    assert (there / "ab" / "a.whl").stat().st_mode & 0o777 == 0o644
    assert ran == [False, True]
    shutil.rmtree(there)
    result = made.run(None, ABOUT)
    assert result["failed"]
    assert result["msg"].startswith("h1 says: cp: ")


@pytest.mark.parametrize(
    ("method", "code", "calls"),
    [("smart", 0, ["sftp 2"]), ("smart", 1, ["sftp 2", "sftp 1", "scp", "sftp 1", "scp"]),
     ("sftp", 255, ["sftp 2"]), ("scp", 0, ["scp", "scp"])],
)  # fmt: skip
def test_all_files_go_by_one_call_of_sftp_where_the_node_has_it(
    tmp_path: Path, method: str, code: int, calls: list[str]
) -> None:
    batch = 'for word; do [ "$last$word" != -b- ] && [ "$last" = -b ] && exec 3<&0 <"$word"'
    for name, script in {
        "sftp": f"{batch}; last=$word; done; cat >put; cat put >>puts"
        f"; echo sftp $(wc -l <put) >>calls; exit {code}",
        "scp": "echo scp >>calls",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        (tmp_path / name).chmod(0o755)
    names = ["a b.whl", "it's.whl"]
    made = action()
    made._play_context = PlayContext()
    made._play_context.remote_addr = "h1"
    made._connection = connection_loader.get("ssh", made._play_context)
    own = {"sftp_extra_args": "-B 1000", "ssh_transfer_method": method, "reconnection_retries": 0}
    programs = {f"{name}_executable": str(tmp_path / name) for name in ("sftp", "scp")}
    made._connection.set_options(direct={"host": "h1", **own, **programs})
    made._transfer_file = made._connection.put_file
    made._host, made._task.args = "h1", {"for_login": True}
    for name in names:
        (tmp_path / name).touch()
    files = [{"sha256": name[0], "path": str(tmp_path / name)} for name in names]
    if code == 255:
        with pytest.raises(AnsibleConnectionFailure):
            made._send("/there", files)
    else:
        assert made._send("/there", files) == {"changed": True}
        assert made._connection.get_option("sftp_extra_args") == "-B 1000"
        assert made._connection.get_option("sftp_batch_mode") is True
    assert (tmp_path / "calls").read_text().splitlines() == calls
    if "sftp" in calls[0]:
        sent = [shlex.split(line) for line in (tmp_path / "puts").read_text().splitlines()[:2]]
        assert sent == [["put", str(tmp_path / n), f"/there/{n[0]}/{n}"] for n in names]


def test_what_a_node_prints_while_files_are_sent_fills_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    monkeypatch.setattr(transfer, "limit_memory", limits.append)
    (tmp_path / "x").write_bytes(bytes(1000))

    def endless() -> str:
        assert limits == [1000]
        raise MemoryError

    made = action(folder="/node", files=[{"path": str(tmp_path / "x"), "sha256": "a"}])
    made._connection.transport = "ssh"
    made._writes_as_another_user = lambda: True
    made._make_tmp_path = endless
    assert "more than fleetbuild reads" in made.run(None, ABOUT)["msg"]


def test_a_file_without_an_end_takes_little_memory_of_ansibles_last_way(tmp_path: Path) -> None:
    made = action(folder="/node", fetch=[{"path": "x.log"}], dest=str(tmp_path))
    made._connection.transport = "ssh"
    made._connection.fetch_file = lambda *_: bytearray(100 << 20)
    if not (child := os.fork()):  # for its limits stay
        with contextlib.suppress(BaseException):
            os._exit("too large for a node without" in made.run(None, ABOUT)["msg"])
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_the_error_of_a_transfer_quotes_little_of_what_a_node_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)

    def fail(there: str, here: str) -> None:
        raise AnsibleError("x" * 10**7)

    made = action(folder="/node", fetch=[{"path": "x.log"}], dest=str(tmp_path))
    made._connection.fetch_file = fail
    assert len(made.run(None, ABOUT)["msg"]) < 5000
