"""Playbooks that groups share: requests that arrive together become one run of the playbook.

In: requests of a rollout's groups, each from a thread and for hosts of its own. Out: the events and
the `HostRun`s of these hosts. It stands between the groups and `Playbooks`, because each start of
ansible-playbook takes 0.65 s of CPU and 100 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from threading import Condition, Thread
from typing import Any, Self, TypeVar

from fleetbuild.ansible.playbooks import HostRun, RunPlaybook, TaskEvent

_TOGETHER = 0.3  # seconds that a request waits for requests of other groups
T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """A playbook that a group asks for. It ends with its own hosts, or with a problem."""

    name: str
    limit: Sequence[str]
    extravars: Mapping[str, Any]
    on_event: Callable[[TaskEvent], None]
    hosts: dict[str, HostRun] = field(default_factory=dict)  # the hosts that have ended
    problem: BaseException | None = None
    has_started: bool = False
    has_ended: bool = False


@dataclass(eq=False)
class _Playbook:
    """One run of a playbook, and the part of the forks and of the bandwidth that it got."""

    requests: Mapping[str, _Request]  # by host
    share: Fraction
    slots: int  # the hosts that it works on at a time; each has the same part
    waiting: set[str]  # the hosts that have not ended

    def held(self) -> Fraction:
        return self.share * Fraction(min(len(self.waiting), self.slots), self.slots)


class SharedPlaybooks:
    """Runs playbooks for groups, of which `at_once` work at a time until all have ended.

    Each working group is due the same part of the forks and of the bandwidth. Hosts that have ended
    give their part back. So all playbooks together never use more than there is.
    """

    def __init__(
        self,
        run_playbook: RunPlaybook,
        *,
        groups: int,
        at_once: int,
        forks: int,
        bandwidth: bool = False,
    ) -> None:
        self._run_playbook, self._forks = run_playbook, forks
        self._groups, self._at_once = groups, at_once
        # Without a limit, a host needs no more than its fork.
        self._bandwidth = bandwidth
        self._requests: list[_Request] = []  # not yet started
        self._playbooks: list[_Playbook] = []
        self._threads: list[Thread] = []  # one for each playbook
        self._changed = Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def work(self, group: Callable[[], T]) -> T:
        """Do the work of a group; once it has ended, the others share its part."""
        try:
            return group()
        finally:
            with self._changed:
                self._groups -= 1
                self._changed.notify_all()

    def run(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None],
        share: Fraction = Fraction(1),  # noqa: ARG002 (decided here)
    ) -> Mapping[str, HostRun]:
        """Run a playbook on these hosts, together with other groups; return once they have ended.

        The playbook itself may go on with hosts of other groups.
        """
        request = _Request(name, limit, extravars, on_event)
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
            self._changed.wait_for(lambda: request.has_started or self._all_ask(), _TOGETHER)
            while not (request.has_started or self._start(request)):
                self._changed.wait()
            self._changed.wait_for(lambda: request.has_ended)
        if request.problem:
            raise request.problem
        return request.hosts

    def _working(self) -> int:
        return min(self._groups, self._at_once)

    def _all_ask(self) -> bool:
        """Return whether each working group has asked, so that no other request will come."""
        return len(self._requests) >= self._working()

    def _start(self, first: _Request) -> bool:
        """Start a playbook for this request and others that can join it, if enough is free."""
        joined = self._joined(first)
        requests = {host: request for request in joined for host in request.limit}
        fork = Fraction(1, self._forks)
        due, needed = max(Fraction(len(joined), self._working()), fork), fork * len(requests)
        free = 1 - sum((playbook.held() for playbook in self._playbooks), Fraction(0))
        if free < min(due, needed):
            return False
        share = min(due, free) if self._bandwidth else min(due, needed, free)
        slots = min(len(requests), int(self._forks * share))
        playbook = _Playbook(requests, share, slots, set(requests))
        thread = Thread(target=self._play, args=(first.name, playbook, joined))
        self._requests.remove(first)
        thread.start()  # if it cannot, only this request fails
        self._threads.append(thread)
        self._playbooks.append(playbook)
        self._requests = [request for request in self._requests if request not in joined]
        for request in joined:
            request.has_started = True
        self._changed.notify_all()
        return True

    def _joined(self, first: _Request) -> Sequence[_Request]:
        """Return this request and others of the same playbook whose hosts all fit in at once.

        Behind the many hosts of one group, the few of another would hold up its next wave.
        """
        joined, hosts = [first], len(first.limit)
        for request in self._requests:
            due = Fraction(len(joined) + 1, self._working())
            fits = hosts + len(request.limit) <= self._forks * due
            if request is not first and request.name == first.name and fits:
                joined.append(request)
                hosts += len(request.limit)
        return joined

    def _play(self, name: str, playbook: _Playbook, joined: Sequence[_Request]) -> None:
        hosts: Mapping[str, HostRun] = {}
        problem: BaseException | None = None
        try:
            hosts = self._run_playbook(
                name,
                limit=sorted(playbook.requests),
                extravars={
                    variable: {
                        host: value
                        for request in joined
                        for host, value in request.extravars[variable].items()
                    }
                    for variable in joined[0].extravars
                },
                on_event=lambda event: self._take(playbook, event),
                share=playbook.share,
            )
        except BaseException as error:  # also Ctrl-C: each group's thread raises it
            problem = error
        with self._changed:
            self._playbooks.remove(playbook)
            for request in joined:
                if not request.has_ended:
                    request.has_ended, request.problem = True, problem
                    request.hosts |= {host: hosts[host] for host in request.limit if host in hosts}
            self._changed.notify_all()

    def _take(self, playbook: _Playbook, event: TaskEvent) -> None:
        """Pass an event on to the group of its host; note whether the host has ended."""
        request = playbook.requests.get(event.host)
        if request is None:
            return
        problem = None
        if not request.has_ended:
            try:
                request.on_event(event)
            except BaseException as error:  # of one group: the others go on
                problem = error
        if not (event.final or problem):
            return
        with self._changed:
            if event.final:
                request.hosts[event.host] = event.final
                playbook.waiting.discard(event.host)
            if problem or len(request.hosts) == len(request.limit):
                request.has_ended, request.problem = True, request.problem or problem
            self._changed.notify_all()
        requests = playbook.requests.values()
        if playbook.waiting and all(each.has_ended for each in requests):
            # This ends the playbook: nobody waits for its other hosts.
            raise next(each.problem for each in requests if each.problem)
