"""Make connections notice a silent node, and end the processes of a run that is interrupted.

In: Ansible's settings, the private folder of a run. Out: variables for ansible-playbook.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.ansible._watch import processes_of

if TYPE_CHECKING:
    from fleetbuild.ansible.settings import Settings

_MISSED = 3  # keepalives without an answer before ssh gives up
_PROGRAMS = ("ssh", "sftp", "scp")


def connections(settings: Settings, silence: float, private: Path) -> dict[str, str]:
    """Variables that make ssh give up after `silence` seconds without an answer.

    ssh uses the first value of an option and the extra arguments come last, so the user's ssh_args
    and ssh_common_args win. A node has half of that time to answer a new connection, unless the
    user has set Ansible's timeout: with its default of 10 s, a node that stands still for a moment
    would be lost. The control sockets that Ansible shares between tasks are in the run's
    folder: a shared connection to a dead node, left by another run, would hang this run.
    """
    interval = max(1, round(silence / (_MISSED + 1)))
    ours = f"-o ServerAliveInterval={interval} -o ServerAliveCountMax={_MISSED}"
    env = {}
    if not settings.keys() & {"DEFAULT_TIMEOUT", "ssh.timeout"}:
        env["ANSIBLE_TIMEOUT"] = str(max(1, round(silence / 2)))
    for name in _PROGRAMS:
        given = settings.get(f"ssh.{name}_extra_args") or ""
        env[f"ANSIBLE_{name.upper()}_EXTRA_ARGS"] = f"{given} {ours}".strip()
    if not settings.keys() & {"ssh.control_path", "ssh.control_path_dir"}:
        env["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str(private / "cp")
    return env


def end_connections(private: Path) -> None:
    """Kill the ssh processes of a run: shared connections and commands cut off by a time limit."""
    for process in processes_of(private):
        if process.name in _PROGRAMS:
            process.send(signal.SIGKILL)


def signal_run(private: Path, number: signal.Signals, *, children_only: bool = False) -> None:
    """Send a signal to the processes of one run."""
    for process in processes_of(private):
        if not children_only or process.parent == os.getpid():
            process.send(number)
