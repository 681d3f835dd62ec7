"""A transfer in which nothing moves is ended; a slow one goes on. The sftp is the real one."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from tests.factories.processes import left_behind
from tests.factories.role_modules import plugin

stalls, transfer = plugin("plugin_utils.stalls"), plugin("action.transfer")
# What sftp starts in place of ssh: a server that answers so many requests, each after a while.
# It reads and writes all the time, as ssh does when it asks whether a node lives.
SSH = """#!{python}
import os, struct, sys, threading, time

def speak():
    while True:
        time.sleep(0.02)
        os.pread(there, 10, 0)

def read(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data

there = os.open({file!r}, os.O_RDONLY)
threading.Thread(target=speak, daemon=True).start()
for number in range({answers}):
    payload = read(struct.unpack(">I", read(4))[0])
    time.sleep({pause})
    kind, request = payload[0], payload[1:5]
    answer = {{
        1: b"\\2" + struct.pack(">I", 3),  # the protocol's version
        3: b"\\x66" + request + struct.pack(">I", 1) + b"h",  # a file is open
    }}.get(kind, b"\\x65" + request + struct.pack(">III", 2 if kind in (7, 16, 17) else 0, 0, 0))
    if kind == 16:
        path = payload[9:]
        name = struct.pack(">I", len(path)) + path
        answer = b"\\x68" + request + struct.pack(">I", 1) + name + name + bytes(4)
    os.write(1, struct.pack(">I", len(answer)) + answer)
time.sleep(600)
"""


# Ansible's last way forgets an ssh that is killed while it writes to it (_send_initial_data).
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What stands still ends after a second."""
    monkeypatch.setattr(stalls, "_PATIENCE", 1.0)
    monkeypatch.setattr(stalls, "_INTERVAL", 0.1)
    yield
    gc.collect()  # here, and not in a later test


@pytest.fixture
def send(tmp_path: Path) -> Callable[..., Any]:
    """Send files to a server that answers so."""

    def sent(answers: int, pause: float = 0, method: str = "sftp", size: int = 1 << 20) -> Any:
        ssh, file = tmp_path / "ssh", tmp_path / "wheel"
        file.write_bytes(bytes(size))
        ssh.write_text(
            SSH.format(python=sys.executable, file=str(file), answers=answers, pause=pause)
        )
        ssh.chmod(0o755)
        action: Any = transfer.ActionModule.__new__(transfer.ActionModule)
        action._play_context = PlayContext()
        action._play_context.remote_addr = "n1"
        action._connection = connection_loader.get("ssh", action._play_context)
        options = {"sftp_extra_args": f"-S {ssh}", "host": "n1", "ssh_transfer_method": method}
        action._connection.set_options(direct=options)
        action._host, action._task = "n1", SimpleNamespace(args={"for_login": True})
        sent = [{"sha256": str(number), "path": str(file)} for number in range(3)]
        return action._send("/there", sent)

    return sent


@pytest.mark.parametrize("method", ["sftp", "smart"])
@pytest.mark.parametrize("answers", [0, 8])
def test_a_transfer_that_stands_still_is_ended_at_once(
    send: Callable[..., Any], answers: int, method: str, tmp_path: Path
) -> None:
    with pytest.raises(stalls.Stalled, match=r"^n1 accepted sftp, and then nothing moved for 1 s"):
        send(answers, method=method)
    assert left_behind(tmp_path / "ssh", 1) == []


def test_a_slow_transfer_goes_on(send: Callable[..., Any]) -> None:
    began = time.monotonic()
    send(200, pause=0.1)
    assert time.monotonic() - began > 2 * stalls._PATIENCE


def test_a_program_that_waits_for_ssh_is_not_ended(tmp_path: Path) -> None:
    """Ansible's last way to send a file is a command over ssh."""
    for name in ("ssh", "sshpass"):
        (tmp_path / name).symlink_to(shutil.which("sleep") or "")
        with stalls.watched("n1"):
            subprocess.run([tmp_path / name, "2.5"], check=True)


def test_a_file_that_never_comes_is_ended_in_ansibles_last_way_too(tmp_path: Path) -> None:
    """As of a pipe in the place of a wheel: sftp and scp refuse it, and the node's dd waits."""
    (tmp_path / "ssh").symlink_to(shutil.which("sh") or "")
    forever = "while :; do :; done"
    with pytest.raises(stalls.Stalled), stalls.watched("n1", fetches=True):
        subprocess.run([tmp_path / "ssh", "-c", forever], check=False, capture_output=True)
    slow = "for n in 1 2 3 4 5; do echo $n; sleep 0.5; done"
    with stalls.watched("n1", fetches=True):
        subprocess.run([tmp_path / "ssh", "-c", slow], check=True, capture_output=True)


def test_a_program_that_was_there_before_does_not_count() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        with stalls.watched("n1"):
            time.sleep(2.5)
        assert other.poll() is None
        other.kill()
