"""End a transfer of files in which nothing moves. Runs inside ansible-playbook.

A node whose sshd answers but whose sftp server does not would hold its task until the task's time
limit, a day for wheels: ssh sees no silence, since its own questions are answered.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure

_PATIENCE = 300.0  # seconds; at 1 kbit/s, sftp moves a piece of a file in 262 s
_INTERVAL = 10.0  # seconds


class Stalled(AnsibleConnectionFailure):
    """Nothing of a file moved for too long."""

    def result(self) -> dict[str, Any]:
        """Return the task's result: the node is unreachable, and the message says how long."""
        return {"unreachable": True, "stalled": True, "msg": str(self)}


@contextmanager
def watched(host: str, *, fetches: bool = False) -> Iterator[None]:
    """End the sftp and scp that Ansible starts meanwhile if nothing moves; then raise Stalled.

    If it fetches, end Ansible's last way too, a command over ssh: this process reads what comes.
    """
    if not Path("/proc/self/io").exists():
        yield
        return
    ended, stalled = threading.Event(), threading.Event()
    others = {*_below(os.getpid()), *(() if fetches else (os.getpid(),))}
    threading.Thread(target=_watch, args=(ended, stalled, others), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        if stalled.is_set():
            raise Stalled(
                f"{host} accepted sftp, and then nothing moved for {_PATIENCE:.0f} s: find out"
                " what blocks its sftp server or its disk"
            )


def _watch(ended: threading.Event, stalled: threading.Event, others: set[int]) -> None:
    """Kill the programs below this process once nothing has been read and written for too long.

    The ways that Ansible tries next are ended too; the programs that were there before are not.
    """
    moved, still = {}, 0.0
    while not ended.wait(_INTERVAL):
        before, moved = moved, _moved(others)
        still = still + _INTERVAL if moved and moved == before else 0.0
        if still >= _PATIENCE or stalled.is_set():
            stalled.set()
            for process in _below(os.getpid()).keys() - others:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)


def _moved(others: set[int]) -> dict[int, str]:
    """Return what this process and each program below it, but the others, has read and written.

    The ssh below sftp does not count: it also reads and writes to ask whether the node lives. Nor
    does sshpass, which waits for either, nor the thread of this process that watches.
    """
    moved = {}
    for process, name in {os.getpid(): "", **_below(os.getpid(), but="ssh")}.items():
        with suppress(OSError):
            if name != "sshpass" and process not in others:
                moved[process] = Path(f"/proc/{process}/task/{process}/io").read_text("ascii")
    return moved


def _below(parent: int, but: str = "") -> dict[int, str]:
    """Return the names of processes below one; one of the other name is left out with its own."""
    children: dict[int, dict[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            head, _, rest = stat.read_text("utf-8", "replace").rpartition(")")
            number, _, name = head.partition(" (")
            if name != but:
                children.setdefault(int(rest.split()[1]), {})[int(number)] = name
    found: dict[int, str] = {}
    parents = [parent]
    for process in parents:  # which grows
        found |= children.get(process, {})
        parents += children.get(process, {})
    return found
