"""One run at a time in a state directory.

The lock is the kernel's (flock), so it ends with the process that holds it, however that ends;
what the file says is only for the one who finds it locked.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetbuild.errors import LockedError
from fleetbuild.models import now
from fleetbuild.state.directory import one_line


@contextmanager
def hold_run_lock(path: Path) -> Iterator[None]:
    """Hold the lock, or raise LockedError saying who does and since when."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(descriptor, path)
        _sign(descriptor)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)  # gives the lock back; the file stays, or a third run could slip in


def _take(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{path} is held by {_holder(descriptor)}.",
            "Wait until that run has ended, or end it; the lock goes with it.",
        ) from None


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    signature = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
    os.pwrite(descriptor, one_line(signature).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        signature = json.loads(os.pread(descriptor, 4096, 0))
        return "process {pid} on {host} since {since}".format_map(signature)
    except (ValueError, KeyError, TypeError):
        return "another run"  # caught between taking and signing
