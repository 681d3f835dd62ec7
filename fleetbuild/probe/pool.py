"""Run a job per node in parallel, each with a deadline, so that no node blocks the others."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Outcome = TypeVar("Outcome")
Outcome_co = TypeVar("Outcome_co", covariant=True)
PER_GATE = 8  # sshd's MaxStartups lets ten in before it drops some


class Job(Protocol[Outcome_co]):
    """The work for one item, done in its own thread."""

    def run(self, admitted: Callable[[str | None], None]) -> Outcome_co:
        """Do the work. `admitted(gate)` waits for a slot at a gate, then starts the clock."""
        ...

    def abandon(self) -> None:
        """Stop the job; called from another thread."""
        ...


@dataclass
class _Running(Generic[Outcome]):
    job: Job[Outcome]
    since: float = float("inf")  # the clock starts when it is admitted


def run_all(
    jobs: Sequence[Job[Outcome]], *, at_once: int, timeout: float, late: Callable[[], Outcome]
) -> Iterator[tuple[int, Outcome | BaseException]]:
    """Run jobs and yield their number and outcome as they end; `late()` for one past its deadline.

    Leaving the iterator early, as Ctrl-C does, stops all running jobs.
    """
    pool = _Pool(jobs, at_once, timeout)
    try:
        while pool.fill():
            ended = pool.next_ended()
            yield from [ended] if ended else [(number, late()) for number in pool.drop_late()]
    finally:
        pool.abandon()


class _Pool(Generic[Outcome]):
    """A pool of daemon threads that are never joined.

    A thread stuck in the resolver or the kernel delays nothing beyond its own deadline.
    """

    def __init__(self, jobs: Sequence[Job[Outcome]], at_once: int, timeout: float) -> None:
        self._waiting = iter(enumerate(jobs))
        self._at_once = at_once
        self._timeout = timeout
        self._running: dict[int, _Running[Outcome]] = {}
        self._ended: queue.SimpleQueue[tuple[int, Outcome | BaseException]] = queue.SimpleQueue()
        self._gates: defaultdict[str, threading.Semaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(PER_GATE)
        )

    def fill(self) -> bool:
        """Start as many jobs as allowed; return False once no job is running."""
        while len(self._running) < self._at_once and (following := next(self._waiting, None)):
            number, job = following
            entry = self._running[number] = _Running(job)
            threading.Thread(target=self._work, args=(number, entry), daemon=True).start()
        return bool(self._running)

    def next_ended(self) -> tuple[int, Outcome | BaseException] | None:
        """Return the next job that ends; None if a deadline may have passed first."""
        first = min(entry.since for entry in self._running.values())
        patience = min(0.5, max(0.01, first + self._timeout - time.monotonic()))
        try:
            number, outcome = self._ended.get(timeout=patience)
        except queue.Empty:
            return None
        known = self._running.pop(number, None)  # missing if it was late and already reported
        return (number, outcome) if known else None

    def drop_late(self) -> list[int]:
        """Give up jobs past their deadline; return their numbers."""
        now = time.monotonic()
        late = [n for n, entry in self._running.items() if now - entry.since >= self._timeout]
        for number in late:
            self._running.pop(number).job.abandon()
        return late

    def abandon(self) -> None:
        """Give up all jobs."""
        for entry in self._running.values():
            entry.job.abandon()

    def _work(self, number: int, entry: _Running[Outcome]) -> None:
        held: list[threading.Semaphore] = []

        def admitted(gate: str | None) -> None:
            if gate is not None:
                self._gates[gate].acquire()
                held.append(self._gates[gate])
            entry.since = time.monotonic()

        try:
            outcome: Outcome | BaseException = entry.job.run(admitted)
        except BaseException as problem:
            outcome = problem
        finally:
            for gate in held:
                gate.release()
        self._ended.put((number, outcome))
