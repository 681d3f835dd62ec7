"""Clean up after a killed run of Ansible: end its processes and remove its private directory.

Run as a program (`python _watch.py DIRECTORY`) it watches the controller through a pipe on standard
input. A byte means that the run ended normally; end of file without a byte means that the
controller was killed. It uses only the standard library and so starts in 15 ms.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PREFIX = "fleetbuild-run-"
MEMORY = Path("/dev/shm")  # noqa: S108 (only new directories with mode 0700)
_YOUNG = 10.0  # seconds; a directory this new may not be locked yet
_SHARED = b"_ANSIBLE_SSH_ASKPASS_SHM="


def end(private: Path) -> None:
    """Kill the processes of a run whose controller is dead, and remove its private directory."""
    for _ in range(50):
        processes = list(processes_of(private))
        if not processes:
            break
        for process in processes:
            _forget_password(process.environ)
            process.send(signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(private, ignore_errors=True)


class Process(NamedTuple):
    """A process of a run."""

    id: int
    name: str
    parent: int
    environ: bytes

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(OSError):
            os.kill(self.id, number)


def processes_of(private: Path) -> Iterator[Process]:
    """Yield this user's processes of the run with this private directory.

    Their environment names the directory; for a shared connection, whose environment ssh
    overwrites, the process title does.
    """
    mark, socket = f"FLEETBUILD_RUN={private}\0".encode(), f"ssh: {private}/cp/".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            status = folder.joinpath("status").read_text().partition("\nUid:")[2]
            # Anybody can put that name into an environment, also of su, which runs as root.
            if int(status.split(None, 1)[0]) != os.geteuid():
                continue
            shared = folder.joinpath("cmdline").read_bytes().startswith(socket)
            environ = folder.joinpath("environ").read_bytes()
            if shared or mark in environ:
                name, _, rest = folder.joinpath("stat").read_text().rpartition(")")
                yield Process(
                    int(folder.name), name.partition("(")[2], int(rest.split()[1]), environ
                )


def sweep() -> list[str]:
    """End runs whose controller and watcher were both killed; return a warning if there are any."""
    swept = []
    for parent in {MEMORY, Path(tempfile.gettempdir())}:
        for path in parent.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if _abandoned(path):
                    end(path)
                    swept.append(str(path))
    removed = ", ".join(swept)
    return [f"An earlier run was killed. Removed its directories: {removed}."] if swept else []


def _abandoned(path: Path) -> bool:
    """Return whether a directory belongs to this user and its controller no longer locks it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid() or time.time() - about.st_mtime < _YOUNG:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _forget_password(environ: bytes) -> None:
    """Remove the shared memory in which ansible-core 2.19 gives ssh its password."""
    for entry in environ.split(b"\0"):
        name = entry.removeprefix(_SHARED)
        if name != entry and b"/" not in name:
            with contextlib.suppress(OSError):
                MEMORY.joinpath(os.fsdecode(name)).unlink()


if __name__ == "__main__" and not sys.stdin.buffer.read(1):
    end(Path(sys.argv[1]))
