"""Jobs side by side, each in its own thread: one that waits keeps no other from going on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from fleetbuild.models import Event, OnEvent

T = TypeVar("T")


def run_in_parallel(
    jobs: Sequence[Callable[[], T]], most: int, stop: Callable[[], None]
) -> list[T]:
    """What the jobs return, in their order; at most so many at a time.

    An exception waits until the other jobs have ended. Ctrl-C does not: `stop` is called, which
    must end the jobs under way.
    """
    if min(len(jobs), most) <= 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(most, thread_name_prefix="fleetbuild-group") as pool:
        futures: list[Future[T]] = []
        try:
            futures += map(pool.submit, jobs)
            errors = [future.exception() for future in futures]
            if error := next(filter(None, errors), None):
                raise error
        except KeyboardInterrupt:
            stop()
            for future in futures:
                future.cancel()
            raise
    return [future.result() for future in futures]


def one_by_one(on_event: OnEvent) -> OnEvent:
    """The same callback for several threads, one event at a time."""
    lock = Lock()

    def tell(event: Event) -> None:
        with lock:
            on_event(event)

    return tell
