"""Threads that end soon after the main thread is interrupted.

In: jobs. Out: their results. Ctrl-C reaches the main thread, which may not wait for the others: a
program may run for minutes, and a server may be silent. So whatever takes long in a thread asks
`is_stopped`, and jobs that have not begun are dropped.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

POLL = 0.2  # seconds after which a thread that waits for a program asks again
_own = threading.local()


class Workers(ThreadPoolExecutor):
    """A pool of threads that stop if an exception leaves its block; they get `grace` seconds."""

    def __init__(self, most: int, *, grace: float = 3) -> None:
        self._stopped, self._grace = threading.Event(), grace
        super().__init__(most, initializer=setattr, initargs=(_own, "stopped", self._stopped))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all jobs, after an exception for the `grace` alone."""
        if kind is None:
            self.shutdown()
            return
        self._stopped.set()
        self.shutdown(wait=False, cancel_futures=True)
        ends = time.monotonic() + self._grace
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))


def is_stopped() -> bool:
    """Return whether this is a thread of `Workers` that must stop."""
    return hasattr(_own, "stopped") and _own.stopped.is_set()


def check_stopped() -> None:
    """Raise KeyboardInterrupt in a thread that must stop."""
    if is_stopped():
        raise KeyboardInterrupt
