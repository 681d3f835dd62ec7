"""A virtual clock, and tasks of which one runs at a time: the seed decides which.

The engine starts threads. Here each is a `Task`, a greenlet: it runs until it sleeps or waits, and
then the next event of the clock is taken, so a schedule takes no real time and is repeatable. To
change between threads takes 40 times as long, and longer where other programs run.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

CHANGES = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod"}
)
_WRITING = 0o1 | 0o2 | 0o100  # O_WRONLY, O_RDWR, O_CREAT
_here = SimpleNamespace(task=None)  # the task that runs now
_free: list[greenlet] = []  # whose tasks have ended; a new one takes memory from the system


class Ended(BaseException):
    """What a task is ended by: its process is killed, its machine stops, the schedule is over."""


class Task:
    """What a thread would be. `process` says before each change of a file if it may be made."""

    def __init__(self, world: World, work: Callable[[], Any], process: Process) -> None:
        self.world, self.work, self.process = world, work, process
        self.frames: greenlet | None = None  # before its first turn
        self.done = False
        self.epoch = 0  # of its waits: who wakes it from an earlier one comes too late
        self.watchers: list[Task] = []


class Process:
    """What tasks belong to: a controller's run, or a module on a node."""

    def change(self, paths: tuple[Any, ...]) -> None:
        """Called before a file is changed; raises where that cannot happen any more."""

    def check(self, task: Task) -> None:
        """Called when a task goes on; raises where it cannot."""

    def stop(self) -> None:
        """Called when its main task leaves a pool by an exception; the others end."""


class World:
    """The clock, its events, and chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 (no secret)
        self.now = 0.0
        self.trace: list[str] = []
        self.tasks: dict[Task, None] = {}  # in the order of their starts: a set's is by address
        self.problem: BaseException | None = None
        # When, chance, number, and a call, or a task with the epoch in which it waits.
        self._events: list[tuple[float, float, int, Any, int | None]] = []
        self._numbers = count()
        self._over = False
        self.greenlet = getcurrent()  # a task that ends goes on here
        _here.task = None
        self._main = Task(self, lambda: None, Process())
        self._main.frames = self.greenlet

    def at(self, delay: float, call: Callable[[], None]) -> None:
        """Call this after a delay; of events at the same time, chance takes the first."""
        self._push(delay, call, None)

    def tell(self, text: str) -> None:
        """Note what happened, for whoever repeats a seed."""
        self.trace.append(f"{self.now:9.2f} {text}")

    def start(self, work: Callable[[], Any], process: Process) -> Task:
        """Start a task."""
        task = Task(self, work, process)
        self.tasks[task] = None
        self.wake(task)
        return task

    def sleep(self, seconds: float) -> None:
        """Let the task that runs now wait."""
        task = self.current()
        task.epoch += 1
        self._resume_later(task, seconds)
        self._wait(task)

    def wait(self) -> None:
        """Let the task that runs now wait until it is woken."""
        task = self.current()
        task.epoch += 1
        self._wait(task)

    def wake(self, task: Task) -> None:
        """Let a waiting task go on."""
        if not task.done:
            self._resume_later(task, 0)

    def join(self, tasks: Iterable[Task]) -> None:
        """Wait until these tasks have ended."""
        for task in tasks:
            while not task.done:
                task.watchers.append(self.current())
                self.wait()

    def current(self) -> Task:
        """Return the task that runs now."""
        return _here.task or self._main

    def stop(self) -> None:
        """End all tasks, at the end of a schedule."""
        self._over = True
        self._events.clear()
        while self.tasks:
            task = next(iter(self.tasks))
            self._resume_later(task, 0)
            task.watchers.append(self._main)
            self._wait(self._main)

    def fail(self, problem: BaseException) -> None:
        """Note the first problem; the main task raises it."""
        self.problem = self.problem or problem
        self._events.clear()
        self._resume_later(self._main, 0)

    def _resume_later(self, task: Task, delay: float) -> None:
        self._push(delay, task, task.epoch)

    def _push(self, delay: float, what: Any, epoch: int | None) -> None:
        event = (self.now + delay, self.chance.random(), next(self._numbers), what, epoch)
        heapq.heappush(self._events, event)

    def _wait(self, task: Task) -> None:
        self._hand_on(task)
        if task is self._main:
            if self.problem and not self._over:
                raise self.problem
            return
        if self._over:
            raise Ended
        task.process.check(task)

    def _hand_on(self, task: Task) -> None:
        """Let other tasks run until this one is to go on."""
        chosen = self._next()
        while chosen is not task:
            _here.task = chosen
            frames = chosen.frames
            if frames is None:
                frames = chosen.frames = _free.pop() if _free else greenlet(_perform, self.greenlet)
            if frames.switch(chosen) is task:
                return
            chosen = self._next()  # a task has ended, and this is the main one
        _here.task = task

    def _next(self) -> Task:
        """Take events until one lets a task go on."""
        while True:
            if not self._events:
                self.fail(AssertionError("Everything waits: the engine would hang for ever."))
            self.now, _, _, what, epoch = heapq.heappop(self._events)
            if epoch is not None:
                if what.epoch == epoch and not what.done:
                    return what
                continue
            _here.task = self._main  # an event belongs to no process
            try:
                what()
            except BaseException as problem:
                self.fail(problem)

    def perform(self, task: Task) -> None:
        """Run a task from its first turn to its end."""
        try:
            if not self._over:
                task.process.check(task)
                task.work()
        except Ended:
            pass
        except BaseException as problem:
            self.fail(problem)
        task.done = True
        self.tasks.pop(task, None)
        for watcher in task.watchers:
            self._resume_later(watcher, 0)


def _perform(task: Task) -> None:
    """Run this task, and then others, each to its end."""
    while True:
        task.world.perform(task)
        back, task = task.world.greenlet, None
        _free.append(getcurrent())
        task = back.switch()


def _before_change(event: str, arguments: tuple[Any, ...]) -> None:
    if event in CHANGES or (event == "open" and arguments[2] & _WRITING):
        task: Task | None = _here.task
        if task is not None:
            task.process.change(arguments)


def watch_files() -> None:
    """Ask the process of a task before each change of a file. This cannot be taken back."""
    sys.addaudithook(_before_change)


class Future:
    """The outcome of a job of a pool."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self.outcome: Any = None
        self.problem: BaseException | None = None
        self.cancelled = False

    def exception(self) -> BaseException | None:
        """Wait for the job; return what it raised."""
        if self.task and not self.cancelled:
            self.task.world.join([self.task])
        return self.problem

    def result(self) -> Any:
        """Wait for the job; return its outcome, or raise."""
        if problem := self.exception():
            raise problem
        return self.outcome

    def cancel(self) -> None:
        """Not needed: a job that was not started is ended by its process."""
        self.cancelled = True


class Pool:
    """Stands in for Workers. Each job is a task from the beginning; `limit` bounds how
    many go at a time."""

    def __init__(self, max_workers: int, **_: Any) -> None:
        self._world = _world_now()
        self._limit, self._running, self._waiting = max_workers, 0, deque[Future]()
        self._futures: list[Future] = []

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        """Start a job, or queue it."""
        future = Future()
        me = self._world.current()

        def work() -> None:
            while self._running >= self._limit:
                self._waiting.append(future)
                self._world.wait()
            if future.cancelled:
                return
            self._running += 1
            try:
                future.outcome = job(*arguments)
            except Ended:
                raise
            except BaseException as problem:
                future.problem = problem
            finally:
                self._running -= 1
                if self._waiting and (following := self._waiting.popleft().task):
                    self._world.wake(following)

        future.task = self._world.start(work, me.process)
        self._futures.append(future)
        return future

    def map(self, job: Callable[..., Any], jobs: Iterable[Any]) -> Iterator[Any]:
        """Do the jobs one after the other."""
        return map(job, jobs)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None and not issubclass(kind, Ended):
            self._world.current().process.stop()
            for future in self._futures:
                future.cancel()
        if kind is None or not issubclass(kind, Ended):
            self._world.join([future.task for future in self._futures if future.task])


class Queue:
    """Stands in for SimpleQueue."""

    def __init__(self) -> None:
        self._world = _world_now()
        self._items: deque[Any] = deque()
        self._getter: Task | None = None

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append(item)
        if self._getter:
            self._world.wake(self._getter)

    def get(self) -> Any:
        """Wait for an item."""
        self._getter = self._world.current()
        while not self._items:
            self._world.wait()
        self._getter = None
        return self._items.popleft()


def in_order(futures: Iterable[Future]) -> list[Future]:
    """Stand in for as_completed: wait for all; chance decides which comes first."""
    done = list(futures)
    for future in done:
        future.exception()
    _world_now().chance.shuffle(done)
    return done


def running() -> Task:
    """Return the task of this thread."""
    task: Task = _here.task
    return task


def _world_now() -> World:
    return running().world
