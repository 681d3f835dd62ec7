"""Many nodes at once: so many at a time, each with its deadline, none able to hold up the rest."""

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
    """The work for one item, done in a thread of its own."""

    def run(self, admitted: Callable[[str | None], None]) -> Outcome_co:
        """Do it. `admitted(gate)` waits for a turn at a gate; the clock starts after it."""
        ...

    def abandon(self) -> None:
        """Stop, from another thread."""
        ...


@dataclass
class _Running(Generic[Outcome]):
    job: Job[Outcome]
    since: float = float("inf")  # until it is admitted, no clock runs


def run_all(
    jobs: Sequence[Job[Outcome]], *, at_once: int, timeout: float, late: Callable[[], Outcome]
) -> Iterator[tuple[int, Outcome | BaseException]]:
    """Run jobs and yield their number and outcome as they end; a late one yields `late()`.

    Leaving the iterator early, as Ctrl-C does, stops all that run.
    """
    pool = _Pool(jobs, at_once, timeout)
    try:
        while pool.fill():
            ended = pool.next_ended()
            yield from [ended] if ended else [(number, late()) for number in pool.drop_late()]
    finally:
        pool.abandon()


class _Pool(Generic[Outcome]):
    """Threads are daemons and nobody joins them: one stuck in the resolver or the kernel costs its
    deadline and no more."""

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
        """Start what there is room for. False once nothing runs any more."""
        while len(self._running) < self._at_once and (following := next(self._waiting, None)):
            number, job = following
            entry = self._running[number] = _Running(job)
            threading.Thread(target=self._work, args=(number, entry), daemon=True).start()
        return bool(self._running)

    def next_ended(self) -> tuple[int, Outcome | BaseException] | None:
        """The next that ends; None where a deadline may have passed before."""
        first = min(entry.since for entry in self._running.values())
        patience = min(0.5, max(0.01, first + self._timeout - time.monotonic()))
        try:
            number, outcome = self._ended.get(timeout=patience)
        except queue.Empty:
            return None
        known = self._running.pop(number, None)  # not known: late, and told so already
        return (number, outcome) if known else None

    def drop_late(self) -> list[int]:
        """Give up those past their deadline."""
        now = time.monotonic()
        late = [n for n, entry in self._running.items() if now - entry.since >= self._timeout]
        for number in late:
            self._running.pop(number).job.abandon()
        return late

    def abandon(self) -> None:
        """Give up all."""
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
