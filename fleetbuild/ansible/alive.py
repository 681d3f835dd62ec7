"""Make connections notice a silent node, and end the processes of a run.

In: Ansible's settings and the private folder of a run. Out: variables for ansible-playbook.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetbuild.ansible.settings import Settings

_MISSED = 3  # keepalives without an answer before ssh gives up
_PROGRAMS = ("ssh", "sftp", "scp")


def keepalive(settings: Settings, silence: float, private: Path) -> dict[str, str]:
    """Variables that make ssh give up after `silence` seconds without an answer.

    ssh uses the first value of an option and the extra arguments come last, so the user's ssh_args
    and ssh_common_args win. The control sockets that Ansible shares between tasks are in the run's
    folder: a shared connection to a dead node, left by another run, would hang this run.
    """
    interval = max(1, round(silence / (_MISSED + 1)))
    ours = f"-o ServerAliveInterval={interval} -o ServerAliveCountMax={_MISSED}"
    env = {
        f"ANSIBLE_{name.upper()}_EXTRA_ARGS": " ".join(
            filter(None, (settings.get(f"ssh.{name}_extra_args"), ours))
        )
        for name in _PROGRAMS
    }
    if not settings.keys() & {"ssh.control_path", "ssh.control_path_dir"}:
        env["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str(private / "cp")
    return env


def end_connections(private: Path) -> None:
    """Kill the ssh processes of a run: shared connections and commands cut off by a time limit."""
    for process in _processes(private):
        if process.name in _PROGRAMS:
            _send(process, signal.SIGKILL)


def signal_run(private: Path, number: signal.Signals, *, children_only: bool = False) -> None:
    """Send a signal to the processes of one run."""
    for process in _processes(private):
        if not children_only or process.parent == os.getpid():
            _send(process, number)


class _Process(NamedTuple):
    id: int
    name: str
    parent: int


def _processes(private: Path) -> Iterator[_Process]:
    """Yield the processes of a run.

    Their environment names the run's folder; for a shared connection, whose environment ssh
    overwrites, the process title does.
    """
    mark, socket = f"FLEETBUILD_RUN={private}\0".encode(), f"ssh: {private}/cp/".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            shared = folder.joinpath("cmdline").read_bytes().startswith(socket)
            if shared or mark in folder.joinpath("environ").read_bytes():
                name, _, rest = folder.joinpath("stat").read_text().rpartition(")")
                yield _Process(int(folder.name), name.partition("(")[2], int(rest.split()[1]))


def _send(process: _Process, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(process.id, number)
