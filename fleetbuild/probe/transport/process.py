"""Run a program with limits on time and output; kill it with all of its children.

The ssh program runs so, and the script itself for ansible_connection=local.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence

from fleetbuild.probe.transport.base import (
    LARGEST,
    LARGEST_COMPLAINT,
    Answer,
    Deadline,
    NoAnswer,
)


class Process:
    """A program in its own process group."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._words = words
        self._env = env
        self._started: subprocess.Popen[bytes] | None = None
        self._given_up = False

    def run(self, stdin: bytes, deadline: Deadline) -> Answer:
        """Run to the end. Raises TimeoutError at the deadline, NoAnswer on too much output."""
        with subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            start_new_session=True,
        ) as started:
            self._started = started
            try:
                if self._given_up:
                    raise TimeoutError
                out, err = _talk(started, stdin, deadline)
                code = started.wait(deadline.left)
            except subprocess.TimeoutExpired:
                raise TimeoutError from None
            finally:
                self.kill()
        return Answer(code, out, err)

    def kill(self) -> None:
        """Kill the program and its children."""
        self._given_up = True
        if self._started is not None and self._started.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._started.pid, signal.SIGKILL)


def _talk(
    started: subprocess.Popen[bytes], stdin: bytes, deadline: Deadline
) -> tuple[bytes, bytes]:
    """Write and read at the same time, so that neither side blocks.

    Once the program has ended, a second of silence is its end: children may keep its output open,
    such as the ProxyCommand of an ssh that gave up.
    """
    assert started.stdin  # noqa: S101 (all three are pipes)
    assert started.stdout  # noqa: S101
    assert started.stderr  # noqa: S101
    sink, out, err = started.stdin.fileno(), started.stdout.fileno(), started.stderr.fileno()
    heard = {out: bytearray(), err: bytearray()}
    rest = memoryview(stdin)
    os.set_blocking(sink, False)
    with selectors.DefaultSelector() as selector:
        selector.register(sink, selectors.EVENT_WRITE)
        selector.register(out, selectors.EVENT_READ)
        selector.register(err, selectors.EVENT_READ)
        while set(selector.get_map()) & heard.keys():
            ready = selector.select(min(deadline.left, 1.0))
            if not ready and started.poll() is not None:
                break
            for key, _ in ready:
                if key.fd == sink:
                    rest = _feed(sink, rest)
                    if not rest:
                        selector.unregister(sink)
                        started.stdin.close()
                elif data := os.read(key.fd, 2**16):
                    _keep(heard[key.fd], data, LARGEST if key.fd == out else LARGEST_COMPLAINT)
                    if len(heard[out]) > LARGEST:
                        raise too_much()
                else:
                    selector.unregister(key.fd)
    return bytes(heard[out]), bytes(heard[err])


def _feed(sink: int, rest: memoryview) -> memoryview:
    try:
        return rest[os.write(sink, rest[: 2**16]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:  # the program ended early; its answer says why
        return rest[:0]


def _keep(heard: bytearray, data: bytes, most: int) -> None:
    heard += data[: max(0, most + 1 - len(heard))]


def too_much() -> NoAnswer:
    """Return the error for a node that prints too much."""
    return NoAnswer(
        f"it printed more than {LARGEST // 2**20} MB", "check what its shell prints at login"
    )


class LocalTransport:
    """Runs the command on the controller itself, in a shell."""

    def __init__(self) -> None:
        self._process: Process | None = None

    def run(self, command: str, stdin: bytes, deadline: Deadline) -> Answer:
        """See Transport."""
        self._process = Process(["/bin/sh", "-c", command])
        return self._process.run(stdin, deadline)

    def abandon(self) -> None:
        """See Transport."""
        if self._process is not None:
            self._process.kill()
