"""Run jobs in parallel threads, so that a job that waits does not block the others."""

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
    """Run the jobs, at most `most` at a time; return their results in order.

    An exception is raised after the other jobs have ended. Ctrl-C calls `stop`, which must end the
    running jobs.
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
    """Wrap a callback so that several threads can call it, one event at a time."""
    lock = Lock()

    def tell(event: Event) -> None:
        with lock:
            on_event(event)

    return tell
