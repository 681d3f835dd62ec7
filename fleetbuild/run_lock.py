"""The run lock: one run at a time in a state directory.

The kernel holds the lock (flock), so it ends with the process, even if that is killed. The content
of the file only names the holder for the error message.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fleetbuild.errors import LockedError, UsageError
from fleetbuild.files import raise_if_full
from fleetbuild.models import now
from fleetbuild.state import one_line
from fleetbuild.text import age, clean


@contextmanager
def hold_run_lock(path: Path) -> Iterator[None]:
    """Hold the lock, or raise LockedError with its holder and start time."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise_if_full(error)
        raise UsageError(
            f"The lock {path} cannot be opened: {error.strerror}.",
            "If it is a link or belongs to another user, remove it.",
        ) from None
    try:
        _take(descriptor, path)
        _write_holder(descriptor)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(
            descriptor
        )  # releases the lock; deleting the file would let two runs lock different files


def why_locked(path: Path) -> str:
    """Return a sentence about the run that holds the lock now; empty if none does."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            _take(file.fileno(), path)
        except LockedError as error:
            return error.message
    return ""


def _take(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{path} is held by {_holder(descriptor)}.",
            "Wait until that run has ended, or stop it; that releases the lock.",
        ) from None


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
    os.pwrite(descriptor, one_line(holder).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        who = "process {pid} on {host}".format_map(holder)
        began = datetime.fromisoformat(holder["since"])
        passed = (datetime.now(UTC) - began).total_seconds()
        clock = began.astimezone()  # the journal on the screen has this machine's time, too
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another run"  # damaged, or read between locking and writing the holder
    return f"{clean(who, limit=300)} since {clock:%Y-%m-%d %H:%M:%S} ({age(passed)})"
