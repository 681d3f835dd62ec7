"""Several files go to a node by one call of sftp, through Ansible's own connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleAuthenticationFailure, AnsibleError
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from tests.factories.role_modules import plugin

transfer = plugin("action.transfer")
SFTP = """#!/usr/bin/env python3
import json, shlex, shutil, sys
batch = sys.stdin.read()
with open({log!r}, "a") as log:
    log.write(json.dumps(batch) + "\\n")
if batch.count("put ") > {most}:
    sys.exit({code})
for number, line in enumerate(batch.splitlines()):
    print("sftp>", line, flush=True)
    if number == {breaks} and batch.count("put ") > 1:
        sys.exit({code})
    shutil.copyfile(*shlex.split(line)[1:])
"""


def action(folder: Path, *, most: int = 9, breaks: int = 9, code: int = 1, **options: str) -> Any:
    """Return an action with two files for a node whose sftp takes so many at a time.

    The first call for more than one file ends at the file with the number `breaks`.
    """
    program = folder / "sftp"
    program.write_text(SFTP.format(log=str(folder / "calls"), most=most, breaks=breaks, code=code))
    program.chmod(0o755)
    made: Any = transfer.ActionModule.__new__(transfer.ActionModule)
    made._play_context = PlayContext()
    made._play_context.remote_addr = "n1"
    made._connection = connection_loader.get("ssh", made._play_context)
    direct = {"sftp_executable": str(program), "host": "n1", "ssh_transfer_method": "smart"}
    made._connection.set_options(direct={**direct, **options})
    made._files, made._arrivals = {}, {}
    for name in ("a b", "c"):
        (folder / name).write_text(name)
        made._files[name], made._arrivals[name] = str(folder / name), str(folder / f"{name}.there")
    return made


def calls(folder: Path) -> list[str]:
    """Return the batch of each call of sftp."""
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def arrived(folder: Path) -> list[str]:
    return [(folder / f"{name}.there").read_text() for name in ("a b", "c")]


def test_two_files_take_one_call(tmp_path: Path) -> None:
    sender = action(tmp_path)
    sender._send()
    assert arrived(tmp_path) == ["a b", "c"]
    assert calls(tmp_path) == [
        f"put '{tmp_path}/a b' '{tmp_path}/a b.there'\nput {tmp_path}/c {tmp_path}/c.there\n"
    ]


@pytest.mark.parametrize("code", [1, 255])
def test_after_a_failure_each_file_is_sent_as_ansible_does(code: int, tmp_path: Path) -> None:
    sender = action(tmp_path, most=1, code=code)
    sender._send()
    assert arrived(tmp_path) == ["a b", "c"]
    assert len(calls(tmp_path)) == 3


@pytest.mark.parametrize("code", [1, 255])
def test_what_has_arrived_before_a_failure_is_not_sent_again(code: int, tmp_path: Path) -> None:
    sender = action(tmp_path, breaks=1, code=code)
    sender._send()
    assert arrived(tmp_path) == ["a b", "c"]
    assert calls(tmp_path)[1:] == [f"put {tmp_path}/c {tmp_path}/c.there\n"]


def test_a_user_who_chose_another_way_keeps_it(tmp_path: Path) -> None:
    sender = action(tmp_path, ssh_transfer_method="scp", scp_executable="/bin/false")
    with pytest.raises(AnsibleError):
        sender._send()
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(("scp_if_ssh", "expected"), [("smart", 1), (True, 2), ("false", 2)])
def test_the_older_option_of_ansible_2_16_counts_where_it_is_all_there_is(
    scp_if_ssh: object, expected: int, tmp_path: Path
) -> None:
    sender = action(tmp_path)
    ssh, own = sender._connection, sender._connection.get_option
    options = {"ssh_transfer_method": None, "scp_if_ssh": scp_if_ssh}
    ssh.get_option = lambda name, **more: options[name] if name in options else own(name, **more)
    one_by_one: list[str] = []
    ssh.put_file = lambda _, there: one_by_one.append(there)
    sender._send()
    assert len(one_by_one or calls(tmp_path)) == expected


def test_a_refused_password_is_not_tried_again(tmp_path: Path) -> None:
    sender = action(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise AnsibleAuthenticationFailure

    sender._connection._bare_run = refuse
    with pytest.raises(AnsibleAuthenticationFailure):
        sender._send()
    assert not (tmp_path / "calls").exists()
