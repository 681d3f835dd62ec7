"""Run a program of the controller with limits on its time, its memory and what it prints.

In: a command. Out: its exit code and output. What git and uv read and print comes from servers and
packages, so that none of it may fill the memory.
"""

from __future__ import annotations

import os
import re
import resource
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fleetbuild.workers import POLL, check_stopped

OLDEST_UV = (0, 9, 5)  # the first that knows PyTorch's index for CUDA 13
MOST_MEMORY = 2 << 30  # uv takes less than a quarter of it for some 500 packages
MOST_FILE = 8 << 30  # what git fetches of a repository is one file
MOST_OUTPUT = 16 << 20  # git's list of 180,000 files; a lock of 400 packages takes a hundredth
MOST_ERRORS = 1 << 20  # the end is kept, where programs say why they fail


def run_program(
    command: Sequence[str],
    *,
    within: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program without input; too much output is a failure, with the reason as its error.

    Raises TimeoutExpired. Ctrl-C ends it, too, in a thread of `Workers` as well.
    """
    ends = time.monotonic() + within
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        restore_signals=False,  # so that a file that is too large is an error, and no SIGXFSZ
    ) as child:
        try:
            _limit(child.pid, resource.RLIMIT_DATA, MOST_MEMORY)
            _limit(child.pid, resource.RLIMIT_FSIZE, MOST_FILE)
            out, errors = _read(child, command, ends, within)
            code = child.wait(max(0.1, ends - time.monotonic()))
        except BaseException:
            child.kill()
            raise
    if out is None:
        said = f"error: {Path(command[0]).name} printed more than {MOST_OUTPUT >> 20} MB"
        return subprocess.CompletedProcess(command, 1, "", said)
    texts = (bytes(stream).decode("utf-8", "replace") for stream in (out, errors))
    return subprocess.CompletedProcess(command, code, *texts)


def _limit(pid: int, kind: int, most: int) -> None:
    """Let a program use so much, or what this process may use if that is less."""
    allowed = resource.getrlimit(kind)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.prlimit(pid, kind, (most, most))


@cache
def uv_program() -> str:
    """Return the uv to ask: the user's on PATH if it is new enough, else the one of fleetbuild.

    So the user's settings are read by the uv that they were written for.
    """
    found = shutil.which("uv")
    if found and Path(found).is_absolute() and _version_of(found) >= OLDEST_UV:
        return found
    return bundled_uv()


def bundled_uv() -> str:
    """Return the uv that is a dependency of fleetbuild. It runs on any Linux with glibc 2.17."""
    from uv import find_uv_bin  # noqa: PLC0415  (not needed by those who only list the store)

    return str(find_uv_bin())


def _version_of(uv: str) -> tuple[int, ...]:
    try:
        said = run_program([uv, "--version"], within=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.match(r"uv (\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, match.groups())) if match else ()


def _read(
    child: subprocess.Popen[bytes], command: Sequence[str], ends: float, within: float
) -> tuple[bytearray | None, bytearray]:
    """Return what it prints; None in place of too much, after which it is killed."""
    assert child.stdout  # noqa: S101 (both are pipes)
    assert child.stderr  # noqa: S101
    out, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, out)
        selector.register(child.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            left = ends - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(command, within)
            check_stopped()
            for key, _ in selector.select(min(left, POLL)):
                data = os.read(key.fd, 1 << 16)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
            del errors[:-MOST_ERRORS]
            if len(out) > MOST_OUTPUT:
                child.kill()
                return None, errors
    return out, errors
