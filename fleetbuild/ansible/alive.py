"""Connections that notice a silent node, and leave no process behind.

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

    ssh takes an option's first value, and the extra arguments come last: what the user's ssh_args
    and ssh_common_args say wins. The connections that Ansible shares between tasks lie in the run's
    folder: one that another run left to a dead node would hang here, and ours end with the run.
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
    """End the ssh processes that a run left: shared connections, and what a time limit cut off."""
    for process in _processes(private):
        if process.name in _PROGRAMS:
            _send(process, signal.SIGKILL)


def signal_run(private: Path, number: signal.Signals, *, children_only: bool = False) -> None:
    """Signal the processes of one run."""
    for process in _processes(private):
        if not children_only or process.parent == os.getpid():
            _send(process, number)


class _Process(NamedTuple):
    id: int
    name: str
    parent: int


def _processes(private: Path) -> Iterator[_Process]:
    """They, and only they, carry the run's folder as a mark: in their environment or, where ssh
    wrote over that, in the title of a shared connection."""
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
