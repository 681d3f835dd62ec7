"""Read wheels and sources in a separate process with limits on processor time and memory.

In: a function, and files of anybody. Out: what it finds. A hostile file of a kilobyte can make work
for hours or unpack to more than memory holds. It is named and left, and others are read meanwhile.
Nothing of a package is read in the process of the command: one for each thread that reads goes from
file to file.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import BaseModel

from fleetbuild.errors import ConfigError
from fleetbuild.workers import POLL, check_stopped

# Of processor time: for each wheel or file, for each MiB that it is packed into, and at most for a
# file and for a wheel. Code of real libraries takes up to three quarters of it (connectorx: 95 s of
# 129); code that is made to be slow is given no more, however much it unpacks to.
BASE_SECONDS = 20
MIB_SECONDS = 2.0
FILE_SECONDS = 120
SECONDS = 240
_SPARE = 3  # beyond the files' own: hashes, names and texts
WALL_SECONDS = 900  # on a busy machine
MEMORY = 2**30
MOST_ANSWER = 2**26  # names of a hundred thousand kernels take a third of it
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # which the terminal's whole group gets
_COMMAND = "from fleetbuild.audit.limited_process import main; main()"


class TooMuchError(Exception):
    """A file takes more processor time to read than it is given."""


def read_apart(
    read: Callable[..., object], *paths: Path, seconds: int = 0, **options: object
) -> Any:
    """Return what a function of a module finds out about these files; None beyond the limits.

    It is given `seconds` of processor time, else as many as the files' sizes ask for. Raises its
    ConfigError.
    """
    sizes = (path.stat().st_size for path in paths if path.exists())
    request = {
        "read": f"{read.__module__}:{read.__qualname__}",
        "paths": [str(path.absolute()) for path in paths],
        "options": options,
        "seconds": seconds or seconds_for(sum(sizes), SECONDS * len(paths)),
    }
    line = json.dumps(request, default=list).encode() + b"\n"
    reader = _reader()
    used = reader.answers > 0
    answer = reader.ask(line)
    if answer is None and used:  # not for what others left in its memory
        reader = _Reader()
        answer = reader.ask(line)
    if answer is None:
        return None
    _idle.append(reader)
    found, problem = json.loads(answer)
    if problem:
        raise ConfigError(*problem)
    return found


def _reader() -> _Reader:
    """Return a process that waits, else a new one."""
    with contextlib.suppress(IndexError):
        return _idle.pop()
    return _Reader()


class _Reader:
    """A process that reads one wheel after the other, until one of them is too much for it."""

    def __init__(self) -> None:
        self.answers = 0
        # This process alone ends it: an interruption would read as a finding about a wheel.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ask(self, line: bytes) -> bytes | None:
        """Return the line that answers this one; None, and no process any more, without one."""
        given, taken = self._child.stdin, self._child.stdout
        assert given is not None  # they are pipes  # noqa: S101
        assert taken is not None  # noqa: S101
        end, answer = time.monotonic() + WALL_SECONDS, bytearray()
        try:
            with contextlib.suppress(BrokenPipeError):
                given.write(line)
                given.flush()
            while not answer.endswith(b"\n"):
                check_stopped()
                ready = select.select([taken], [], [], POLL)[0]
                if not ready and time.monotonic() < end:
                    continue
                part = os.read(taken.fileno(), 1 << 16) if ready else b""
                if not part or len(answer) > MOST_ANSWER:
                    break
                answer += part
            else:
                self.answers += 1
                return bytes(answer)
        except BaseException:
            self.end()
            raise
        self.end()
        return None

    def end(self) -> None:
        """End the process if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(0.2)
        self._child.kill()
        with contextlib.suppress(BrokenPipeError), self._child:
            pass


_idle: list[_Reader] = []  # as many as there are threads that read at once


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()


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
    if soft == resource.RLIM_INFINITY:  # not in the separate process
        yield
        return
    used = _used()
    ends = min(used + seconds, soft - _SPARE)
    if ends <= used:
        raise TooMuchError
    resource.setrlimit(resource.RLIMIT_CPU, (ends, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def limit(seconds: int) -> None:
    """Limit the memory of this process, and the processor time of what it reads next.

    Code that does not return to Python is ended by the timer, which counts the same time.
    """
    if resource.getrlimit(resource.RLIMIT_DATA)[0] != MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXCPU, _stop)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (_used() + seconds + _SPARE, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds + 2 * _SPARE)


def _used() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_utime + usage.ru_stime) + 1  # rounded up: limits are whole seconds


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TooMuchError


def main() -> None:
    """Answer each request of standard input on standard output, both lines of JSON."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        limit(request["seconds"])
        read, found, problem = pkgutil.resolve_name(request["read"]), None, None
        try:
            found = read(*map(Path, request["paths"]), **request["options"])
        except ConfigError as error:
            problem = error.message, error.fix
        document = found.model_dump(mode="json") if isinstance(found, BaseModel) else found
        sys.stdout.write(json.dumps((document, problem)) + "\n")
        sys.stdout.flush()
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEMORY // 2**11:  # in kB
            return  # a large file may have left too little memory for the next
