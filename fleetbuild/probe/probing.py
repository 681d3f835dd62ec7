"""Probe nodes: run script.sh in one round trip, and read its output.

In: nodes. Out: captures and facts, or why a node is unreachable. Nodes are asked in parallel, each
with a deadline, so that no node blocks the others.
"""

from __future__ import annotations

import functools
import queue
import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.resources import files
from typing import Generic, Protocol, TypeVar

from fleetbuild.models import (
    Become,
    Capture,
    Event,
    Facts,
    Login,
    Node,
    OnEvent,
    Unreachable,
    ignore,
)
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import split
from fleetbuild.probe.transport import failure_reasons as reasons
from fleetbuild.probe.transport import openssh
from fleetbuild.probe.transport.base import (
    Answer,
    Deadline,
    NoAnswer,
    Transport,
    remote_command,
)
from fleetbuild.probe.transport.fabric import FabricTransport, beyond_paramiko
from fleetbuild.probe.transport.openssh import SharedSettings
from fleetbuild.probe.transport.process import LocalTransport

WORKSPACE = "~/.cache/fleetbuild"
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+/-]{1,1000}")
T = TypeVar("T")
# Return the command that runs a script with arguments in a node's shell, and its standard input.
Command = Callable[[Become | None, bytes, Sequence[str]], tuple[str, bytes]]


@dataclass(frozen=True)
class Probed:
    """The capture of a node that answered, and the facts in it."""

    capture: Capture
    facts: Facts


def probe(
    nodes: Sequence[Node],
    *,
    timeout: float = 30,
    forks: int = 64,
    install_path: str = "/opt/fleetbuild",
    workspace: str = WORKSPACE,
    on_event: OnEvent = ignore,
) -> dict[str, Probed | Unreachable]:
    """Probe every node; the results are in the order of `nodes`."""
    nonce = f"fleetbuild-{secrets.token_hex(16)}"
    answers = ask(
        nodes,
        script(),
        (nonce, install_path, workspace, _interpreters(nodes), section_seconds(timeout)),
        functools.partial(_read, nonce=nonce),
        timeout=timeout,
        forks=forks,
        on_event=on_event,
    )
    return {node.name: answers[node.name] for node in nodes}


def section_seconds(timeout: float) -> str:
    """Return the limit of each section, as the probe script takes it: half of the node's.

    The sections run at the same time; the other half is for the login.
    """
    return str(max(1, int(timeout / 2)))


def _interpreters(nodes: Sequence[Node]) -> str:
    """Return the paths that the inventory sets for Ansible's modules, for all nodes alike."""
    paths = {path for node in nodes if (path := node.interpreter) and _PLAIN_PATH.fullmatch(path)}
    return " ".join(sorted(paths)[:64])


def script() -> bytes:
    """Return the probe script."""
    return files("fleetbuild.probe").joinpath("script.sh").read_bytes()


def ask(
    nodes: Sequence[Node],
    text: bytes,
    arguments: Sequence[str],
    read: Callable[[Answer, Login], T],
    *,
    timeout: float = 30,
    forks: int = 64,
    on_event: OnEvent = ignore,
    command: Command = remote_command,
) -> dict[str, T | Unreachable]:
    """Run a script on every node, in sh or by another `command`, and read the output.

    `read` may raise NoAnswer.
    """
    if any(node.login.connection == "ssh" for node in nodes):
        # Import here: fifty threads importing at once have hung on Python's import locks.
        import_module("fabric")
    way = functools.partial(
        transport_for, settle=SharedSettings(node.login for node in nodes).settle
    )
    jobs = [
        _NodeProbe(node, lambda become: command(become, text, arguments), timeout, read, way=way)
        for node in nodes
    ]
    answers: dict[str, T | Unreachable] = {}
    for number, outcome in run_all(
        jobs, at_once=forks, timeout=timeout, late=lambda: _late(timeout)
    ):
        if isinstance(outcome, BaseException):
            raise outcome
        node = nodes[number]
        answers[node.name] = outcome
        on_event(_event(node, outcome, len(answers), len(nodes)))
    return answers


class _NodeProbe(Generic[T]):
    """The job for one node: choose a transport, run the script, read the output."""

    def __init__(
        self,
        node: Node,
        command: Callable[[Become | None], tuple[str, bytes]],
        timeout: float,
        read: Callable[[Answer, Login], T],
        *,
        way: Callable[[Login, float], tuple[Transport, str | None]],
    ) -> None:
        self._login = node.login
        self._command = command
        self._timeout = timeout
        self._read = read
        self._way = way
        self._transport: Transport | None = None

    def run(self, admitted: Callable[[str | None], None]) -> T | Unreachable:
        """See Job."""
        try:
            self._transport, bastion = self._way(self._login, self._timeout)
            admitted(bastion)
            command, stdin = self._command(self._login.become)
            answer = self._transport.run(command, stdin, Deadline(self._timeout))
            return self._read(replace(answer, bastion=bastion), self._login)
        except NoAnswer as problem:
            return Unreachable(reason=problem.reason, fix=problem.fix)
        except TimeoutError:
            return _late(self._timeout)

    def abandon(self) -> None:
        """See Job."""
        if self._transport is not None:
            self._transport.abandon()


def transport_for(
    login: Login,
    timeout: float = 30,
    settle: Callable[[Login, Deadline], openssh.Settings] = openssh.settle,
) -> tuple[Transport, str | None]:
    """Return the transport for a node, and its bastion if it has one."""
    if login.connection == "local":
        return LocalTransport(), None
    if login.connection != "ssh":
        raise NoAnswer(
            f"connection {login.connection!r} is not supported", "use ssh, or fleetbuild_skip: true"
        )
    settings = settle(login, Deadline(timeout))
    bastion = next(
        (settings[name][0] for name in ("proxyjump", "proxycommand") if name in settings), None
    )
    if beyond_paramiko(login, settings):
        return openssh.ProgramTransport(login, settings), bastion
    return FabricTransport(login, settings), bastion


def _read(answer: Answer, login: Login, *, nonce: str) -> Probed:
    capture = split(answer.out.decode(errors="replace"), nonce)
    if not capture:
        raise reasons.unusable_answer(answer, login)
    facts = facts_of(capture).model_copy(update={"behind_bastion": answer.bastion is not None})
    return Probed(capture, facts)


def _late(timeout: float) -> Unreachable:
    return Unreachable(
        reason=f"no answer within {timeout:g} s",
        fix="check ansible_host and that no firewall drops packets; if you can log in, look at its"
        " load, hung mounts and the shell's profile there; set a longer --timeout, or leave it out"
        " with fleetbuild_skip: true",
    )


def _event(node: Node, outcome: object, done: int, total: int) -> Event:
    lost = isinstance(outcome, Unreachable)
    return Event(
        stage="probe",
        state="unreachable" if lost else "ok",
        node=node.name,
        message=outcome.reason if isinstance(outcome, Unreachable) else "",
        fix=outcome.fix if isinstance(outcome, Unreachable) else "",
        done=done,
        total=total,
    )


Outcome = TypeVar("Outcome")
Outcome_co = TypeVar("Outcome_co", covariant=True)
PER_BASTION = 8  # sshd's MaxStartups lets ten in before it drops some


class Job(Protocol[Outcome_co]):
    """The work for one item, done in its own thread."""

    def run(self, admitted: Callable[[str | None], None]) -> Outcome_co:
        """Do the work. `admitted(bastion)` waits for a slot at a bastion, then starts the clock."""
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
        self._bastions: defaultdict[str, threading.Semaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(PER_BASTION)
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
        job = self._running.pop(number, None)  # missing if it was late and already reported
        return (number, outcome) if job else None

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

        def admitted(bastion: str | None) -> None:
            if bastion is not None:
                self._bastions[bastion].acquire()
                held.append(self._bastions[bastion])
            entry.since = time.monotonic()

        try:
            outcome: Outcome | BaseException = entry.job.run(admitted)
        except BaseException as problem:
            outcome = problem
        finally:
            for slot in held:
                slot.release()
        self._ended.put((number, outcome))
