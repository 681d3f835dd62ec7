"""Nodes whose modules lie in the values of their replies: nothing starts here for them."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from fleetbuild.ansible import Playbooks
from fleetbuild.ansible.silent_nodes import describe_loss

KEY = "0123456789abcdef0123456789abcdef"
# What a node says that built the wheel long ago, and needs no package.
_HONEST = {
    "changed": False, "rc": 0, "stdout": "", "needed": [], "optional": [], "unknown": [],
    "found": {}, "root": False, "command": "install", "state": "done", "sha256": "0" * 64,
    "file": "six-1-py3-none-any.whl", "seconds": 1, "isolation": "user", "container": "",
    "reason": "", "fix": "", "kind": "", "errors": [], "progress": {}, "home": "/home/liar",
    "missing": [],
}  # fmt: skip
_WANTED = {
    "package": "six", "wheel_version": "1", "key": KEY, "python": "/usr/bin/python3",
    "source": "/nonexistent/six.tar.gz", "source_sha256": "0" * 64,
}  # fmt: skip
_CACHES = shutil.ignore_patterns("__pycache__")  # Ansible may be writing them
_SHELL = "\n!touch reached\n"
# What a node prints in place of a reply.
_NO_REPLY = {
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep-field": '{"state": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "nothing": "",
    "text": "done\n\n!touch reached\n",
    "number": "1e999",
    "null": "null",
    "list": '[{"state": "done"}]',
    "cut": '{"state": "done", "home": "/home/liar',
    "twice": '{"state": "done"}\n{"state": "done", "ansible_facts": {"jump": "x"}}',
    "binary": "\x00\x01\x02{\x00}",
    "escapes": '\x1b[2J{"state": "done"}\x1b]0;title\x07',
    "control": '{"state": "done\x1b[2J", "home": "/x"}',
    "lone-surrogate": '{"state": "done", "home": "/\\ud800"}',
}
# With each read, Ansible copies all that it has read before. With 1 MB at a time that takes half of
# the CPU time that it takes with the 64 kB of a usual pipe.
_WIDE_PIPE = f"{sys.executable} -c 'import fcntl; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)'"
_LIARS: dict[str, dict[str, object]] = {
    "honest": {},
    **{name: {} for name in _NO_REPLY},
    "huge": {},  # what it lets fetch has no end
    "flood": {},  # what its modules print has none
    **{
        f"{field}-{kind}": {field: text}
        for field in ("dir", "home", "file")
        for kind, text in {
            "line": f"/x{_SHELL}/y",
            "quotes": f"/x\\'\"{_SHELL}/y",
            "argument": "/x\\' /tmp/taken \\'",
            "wheel": f"x{_SHELL}.whl",
        }.items()
    },
}


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory of liars: an ssh that runs commands here, and an sftp that records its lines.

    As sftp does, it gives lines that begin with an exclamation mark to a shell.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program(tmp_path / "ssh", 'for last; do :; done\nsh -c "$last"')
    lines = []
    for name, lie in _LIARS.items():
        (tmp_path / f"{name}.reply").write_text(_NO_REPLY.get(name, json.dumps(_HONEST | lie)))
        endless = f"{_WIDE_PIPE}; head -c 3000000000 /dev/zero; " if name == "flood" else ""
        answer = f"[ $# -gt 0 ] || cat >/dev/null\n{endless}cat {tmp_path}/{name}.reply"
        program(tmp_path / f"{name}.python", answer)
        program(
            tmp_path / f"{name}.sftp",
            'for word; do\n  [ "$last$word" != -b- ] && [ "$last" = -b ] && exec 3<&0 <"$word"\n'
            "  last=$word\ndone\n"
            f'while IFS= read -r line; do\n  printf "%s\\n" "$line" >>{tmp_path}/{name}.batch\n'
            '  case "$line" in "!"*) sh -c "${line#!}" ;; esac\n'
            + ('  truncate -s 1T "${line##* }"\n' if name == "huge" else "")
            + "done",
        )
        lines.append(
            f"{name} ansible_python_interpreter={tmp_path}/{name}.python"
            f" ansible_ssh_executable={tmp_path}/ssh ansible_sftp_executable={tmp_path}/{name}.sftp"
        )
    (tmp_path / "hosts").write_text("\n".join(lines) + "\n")
    return tmp_path


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_roles_check_replies_in_a_users_own_playbook_too(
    nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = nodes / "collections/ansible_collections/fleetbuild/core"
    core.parent.mkdir(parents=True)
    core.symlink_to(Path(__file__).parents[2])
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(nodes / "collections"))
    wanted = _WANTED | {"dest": str(nodes / "dest")}
    role = {"name": "fleetbuild.core.build_wheel", "vars": {"build_wheel_spec": wanted}}
    own = nodes / "own.yml"
    own.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": [role]}]))
    liars = [name for name in _LIARS if name.startswith(("home", "file"))]
    hosts = Playbooks(inventory="hosts", state_dir=nodes / "state").run(
        str(own), limit=[*liars, "honest"], extravars={}, on_event=lambda _: None
    )
    assert not (nodes / "reached").exists()
    assert (nodes / "honest.batch").exists()
    for name in liars:
        assert not (nodes / f"{name}.batch").exists(), name
        assert f"{name} answered fleetbuild.core.build" in hosts[name].message


def test_no_value_of_a_reply_becomes_a_line_or_an_argument_of_sftp(nodes: Path) -> None:
    builds = {name: [_WANTED | {"dest": str(nodes / "dest" / name)}] for name in _LIARS}
    hosts = Playbooks(inventory="hosts", state_dir=nodes / "state").run(
        "build.yml",
        limit=list(_LIARS),
        extravars={"fleetbuild_builds": builds},
        on_event=lambda _: None,
    )
    assert not (nodes / "reached").exists()
    place = f"/home/liar/.cache/fleetbuild/builds/{KEY}"
    wheel = "six-1-py3-none-any.whl"
    for name in _LIARS:
        batch, dest = nodes / f"{name}.batch", nodes / "dest" / name
        lines = set(batch.read_text().splitlines()) if batch.exists() else set()
        honest = {
            f"get {place}/build.log {dest}/build.log",
            f"get {place}/out/{wheel} {dest}/{wheel}",
            f"get {place}/out/{wheel}.sha256 {dest}/{wheel}.sha256",
        }
        asked = name == "honest" or name.startswith("dir")  # no field is named dir
        assert lines <= honest, name
        assert lines == (honest if asked else lines if name == "huge" else set()), name
        assert hosts[name].state != "ok"
        assert not [file for file in dest.rglob("*") if file.stat().st_size > 8 << 30]
    assert "more than fleetbuild reads" in hosts["flood"].message


def test_a_build_that_a_node_calls_running_ends_by_the_clock(nodes: Path) -> None:
    running = json.dumps(_HONEST | {"state": "running"})
    program(nodes / "null.python", f"[ $# -gt 0 ] || cat >/dev/null\nsleep 4\necho '{running}'")
    build = _WANTED | {"timeout": -590, "dest": str(nodes / "dest")}  # ten seconds are left
    hosts = Playbooks(inventory="hosts", state_dir=nodes / "state").run(
        "build.yml",
        limit=["null"],
        extravars={"fleetbuild_builds": {"null": [build]}, "build_wheel_poll": 1},
        on_event=lambda _: None,
    )
    assert "six 1: The build did not end in time." in hosts["null"].message


def test_a_node_whose_sftp_never_answers_is_ended_and_others_go_on(
    nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, own = nodes / "collections/ansible_collections/fleetbuild/core", Path(__file__).parents[2]
    for folder in ("meta", "playbooks", "plugins", "roles"):
        shutil.copytree(own / folder, core / folder, ignore=_CACHES)
    patience = core / "plugins/plugin_utils/stalls.py"
    text = patience.read_text().replace("_PATIENCE = 300.0", "_PATIENCE = 2.0")
    patience.write_text(text.replace("_INTERVAL = 10.0", "_INTERVAL = 0.5"))
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(nodes / "collections"))
    program(nodes / "dir-line.sftp", "exec sleep 600")
    names = ["honest", "dir-line"]
    builds = {name: [_WANTED | {"dest": str(nodes / "dest" / name)}] for name in names}
    began = time.monotonic()
    hosts = Playbooks(inventory="hosts", state_dir=nodes / "state").run(
        str(core / "playbooks/build.yml"),
        limit=names,
        extravars={"fleetbuild_builds": builds},
        on_event=lambda _: None,
    )
    assert time.monotonic() - began < 60
    assert "build.log" in (nodes / "honest.batch").read_text()
    lost = hosts["dir-line"]
    assert lost.state == "unreachable"
    assert describe_loss(lost).endswith(
        "dir-line accepted sftp, and then nothing moved for 2 s: find out what blocks its sftp"
        " server or its disk"
    )
