"""Read a wheel in a separate process with limits on processor time and memory.

In: a wheel of anybody. Out: its audit. A hostile wheel of a few hundred kB can unpack to work for
hours. Such a file is named and left, and other wheels are read meanwhile. A wheel that unpacks to a
few MB cannot take long; it is read in this process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fleetbuild.audit.archive import BROKEN

USUAL = 4 * 2**20  # bytes that a wheel unpacks to; at most 4 s of work (160,000 symbols)
# Of processor time: for each wheel or file, for each MiB that it is packed into, and at most for a
# file and for a wheel. Code of real libraries takes a third of it at most (torch's 109 MiB: 18 s);
# code that is made to be slow is given no more, however much it unpacks to.
BASE_SECONDS = 20
MIB_SECONDS = 0.35
FILE_SECONDS = 120
SECONDS = 240
_SPARE = 3  # beyond the files' own: hashes, names and texts
WALL_SECONDS = 900  # on a busy machine
MEMORY = 2**30
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # which the terminal's whole group gets
_COMMAND = "from fleetbuild.audit.apart import main; main()"


class TooMuchError(Exception):
    """A file takes more processor time to read than it is given."""


def is_usual(path: Path) -> bool:
    """Return whether a wheel is so small that it is read in this process."""
    try:
        with zipfile.ZipFile(path) as file:
            return sum(info.file_size for info in file.infolist()) <= USUAL
    except BROKEN:
        return True  # nothing in it is read


def read_apart(what: str, path: Path, **options: object) -> str | None:
    """Return what `audit` or `needs` finds out about a wheel, as JSON; None beyond the limits.

    Raises KeyboardInterrupt if Ctrl-C, or a terminal that closes, ended the process.
    """
    request = json.dumps({"what": what, "path": str(path), "options": options})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)  # until `main`, for exact codes
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with child:
        try:
            document = child.communicate(request.encode(), WALL_SECONDS)[0]
        except BaseException as problem:
            child.kill()
            if isinstance(problem, subprocess.TimeoutExpired):
                return None
            raise
    if -child.returncode in _ENDINGS:  # no finding: `check` would keep it
        raise KeyboardInterrupt
    return document.decode() if child.returncode == 0 else None


def seconds_for(packed: int, most: int) -> int:
    """Return the processor time that so many packed bytes are given."""
    return min(most, BASE_SECONDS + int(MIB_SECONDS * packed / 2**20))


def too_much(seconds: int) -> str:
    """Return the end of a sentence about a file or wheel beyond its limits."""
    return f"takes more than {seconds} s of processor time or {MEMORY // 2**20} MiB to read"


@contextmanager
def turn(seconds: int) -> Iterator[None]:
    """Give the next file its seconds of the wheel's; beyond them raise TooMuchError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY:  # not in the separate process
        yield
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime)
    ends = min(used + seconds, soft - _SPARE)
    if ends <= used:
        raise TooMuchError
    resource.setrlimit(resource.RLIMIT_CPU, (ends, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def limit(seconds: int) -> None:
    """Limit processor time and memory of this process."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + _SPARE, seconds + 2 * _SPARE))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, _stop)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TooMuchError


def main() -> None:
    """Read a request from standard input; write the findings to standard output, as JSON."""
    for number in _ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    request: dict[str, Any] = json.load(sys.stdin)
    limit(seconds_for(Path(request["path"]).stat().st_size, SECONDS))
    # Here, as both import this module.
    from fleetbuild.audit.needs import needs_here  # noqa: PLC0415
    from fleetbuild.audit.wheel import audit_here  # noqa: PLC0415

    read: Any = {"audit": audit_here, "needs": needs_here}[request["what"]]
    sys.stdout.write(read(Path(request["path"]), **request["options"]).model_dump_json())
