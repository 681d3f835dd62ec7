"""Groups whose waves share playbooks, with a stand-in for Ansible whose hosts end one by one."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from threading import Event, Lock, Thread, Timer, main_thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from fleetbuild.ansible import HostRun, SharedPlaybooks, TaskEvent, shared_playbooks
from fleetbuild.apply.rollout import run_in_parallel
from fleetbuild.errors import FleetbuildError

OK = HostRun("ok")
HALF, WHOLE = Fraction(1, 2), Fraction(1)


class Ansible:
    """Runs playbooks. Hosts in `held` end once their event is set, the others at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str], Fraction]] = []
        self.extravars: list[Mapping[str, Any]] = []
        self.held: dict[str, Event] = {}
        self.ends: dict[str, HostRun] = {}
        self.stopping = Event()
        self.problem: Exception | None = None

    def run(
        self, name: str, *, limit: Sequence[str], extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None], share: Fraction = WHOLE,
    ) -> dict[str, HostRun]:  # fmt: skip
        if self.stopping.is_set():
            raise KeyboardInterrupt
        self.calls.append((name, list(limit), share))
        self.extravars.append(extravars)
        for host in sorted(limit, key=lambda host: host in self.held):
            on_event(TaskEvent(host, "Make the release", "ok", {}))
            while host in self.held and not self.held[host].wait(0.05):
                if self.stopping.is_set():
                    raise KeyboardInterrupt
            end = self.ends.get(host, OK)
            on_event(TaskEvent(host, "End the reservation", "skipped", {}, final=end))
        if self.problem:
            raise self.problem
        return {host: self.ends.get(host, OK) for host in limit}

    @property
    def limits(self) -> list[list[str]]:
        return [limit for _, limit, _ in self.calls]


@pytest.fixture
def ansible() -> Iterator[Ansible]:
    before = set(enumerate_threads())
    yield Ansible()
    for thread in set(enumerate_threads()) - before:
        thread.join(20)  # it may still be ending
        assert not thread.is_alive(), f"{thread.name} stays behind"


def work(
    ansible: Ansible,
    groups: Sequence[Callable[[SharedPlaybooks], Any]],
    forks: int = 64,
    **options: bool,
) -> list[Any]:
    """Do the work of groups in parallel, as the rollout does; return the result of each."""
    number = len(groups)
    with SharedPlaybooks(
        ansible.run, groups=number, at_once=number, forks=forks, **options
    ) as shared:
        jobs = [lambda group=group: shared.work(lambda: group(shared)) for group in groups]
        return run_in_parallel(jobs, number, ansible.stopping.set)


def ask(
    shared: SharedPlaybooks, *hosts: str, name: str = "install.yml",
    on_event: Callable[[TaskEvent], None] = lambda _: None,
) -> Mapping[str, HostRun]:  # fmt: skip
    specs = {"specs": {host: f"spec of {host}" for host in hosts}}
    return shared.run(name, limit=list(hosts), extravars=specs, on_event=on_event)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits for the others as long as it takes."""
    monkeypatch.setattr(shared_playbooks, "_TOGETHER", 60)


@pytest.mark.usefixtures("patient")
def test_waves_that_come_together_share_a_playbook(ansible: Ansible) -> None:
    ansible.ends["b1"] = HostRun("failed", "no")
    told: dict[str, list[str]] = {"a": [], "b": []}

    def group(shared: SharedPlaybooks, name: str) -> Mapping[str, HostRun]:
        hosts = (f"{name}1", f"{name}2")
        return ask(shared, *hosts, on_event=lambda event: told[name].append(event.host))

    ends = work(ansible, [lambda s: group(s, "a"), lambda s: group(s, "b")])
    assert ends == [{"a1": OK, "a2": OK}, {"b1": HostRun("failed", "no"), "b2": OK}]
    assert ansible.limits == [["a1", "a2", "b1", "b2"]]
    assert ansible.extravars == [{"specs": {h: f"spec of {h}" for h in ("a1", "a2", "b1", "b2")}}]
    assert told == {"a": ["a1", "a1", "a2", "a2"], "b": ["b1", "b1", "b2", "b2"]}


@pytest.mark.usefixtures("patient")
def test_another_playbook_has_a_run_of_its_own(ansible: Ansible) -> None:
    work(ansible, [lambda s: ask(s, "a"), lambda s: ask(s, "b", name="rollback.yml")])
    assert sorted(ansible.calls)[0][:2] == ("install.yml", ["a"])
    assert sorted(ansible.calls)[1][:2] == ("rollback.yml", ["b"])


def test_groups_whose_waves_end_one_after_the_other_share_the_next_one(ansible: Ansible) -> None:
    def group(shared: SharedPlaybooks, name: str) -> None:
        ask(shared, f"{name}1")
        ask(shared, f"{name}2")

    run = ansible.run

    def slow(name: str, *, on_event: Callable[[TaskEvent], None], **more: Any) -> Any:
        def later(event: TaskEvent) -> None:
            Event().wait(0.02)
            on_event(event)

        return run(name, on_event=later, **more)

    ansible.run = slow  # type: ignore[method-assign]
    work(ansible, [lambda s, n=name: group(s, n) for name in "abcd"])
    assert ansible.limits == [["a1", "b1", "c1", "d1"], ["a2", "b2", "c2", "d2"]]


def test_a_group_goes_on_while_a_node_of_another_one_hangs(ansible: Ansible) -> None:
    ansible.held["a1"] = Event()

    def other(shared: SharedPlaybooks) -> None:
        for number in range(4):
            ask(shared, f"b{number}")
        ansible.held["a1"].set()

    ends = work(ansible, [lambda s: ask(s, "a1", "a2"), other])
    assert ends == [{"a1": OK, "a2": OK}, None]
    assert ansible.limits == [["a1", "a2", "b0"], ["b1"], ["b2"], ["b3"]]


@pytest.mark.usefixtures("patient")
def test_the_last_group_waits_for_nobody(ansible: Ansible) -> None:
    """Also if another one stops, or fails, before it asks for a playbook."""

    def fails(_: SharedPlaybooks) -> None:
        raise ValueError("no")

    def waves(shared: SharedPlaybooks) -> None:
        ask(shared, "a1")
        ask(shared, "a2")

    with pytest.raises(ValueError, match="no"):
        work(ansible, [waves, fails, lambda _: None])
    assert ansible.calls == [
        ("install.yml", ["a1"], Fraction(1, 64)), ("install.yml", ["a2"], Fraction(1, 64)),
    ]  # fmt: skip


@pytest.mark.usefixtures("patient")
def test_a_playbook_that_dies_fails_each_group_that_waits_for_it(ansible: Ansible) -> None:
    ansible.problem = FleetbuildError("ansible-playbook stopped.", "Look there.")
    ended, failed = [], []

    def group(shared: SharedPlaybooks, *hosts: str) -> None:
        try:
            ended.append(ask(shared, *hosts))
        except FleetbuildError as problem:
            failed.append(problem)

    run = ansible.run

    def silent(name: str, *, on_event: Callable[[TaskEvent], None], **more: Any) -> Any:
        return run(name, on_event=lambda e: on_event(e) if e.host == "c" else None, **more)

    ansible.run = silent  # type: ignore[method-assign]
    work(
        ansible, [lambda s: group(s, "a"), lambda s: group(s, "b1", "b2"), lambda s: group(s, "c")]
    )
    assert failed == [ansible.problem] * 2
    assert ended == [{"c": OK}]


@pytest.mark.usefixtures("patient")
def test_a_callback_that_fails_stops_its_own_group_alone(ansible: Ansible) -> None:
    ended = []

    def refuse(_: TaskEvent) -> None:
        raise ValueError("full")

    with pytest.raises(ValueError, match="full"):
        work(
            ansible,
            [lambda s: ask(s, "a", on_event=refuse), lambda s: ended.append(ask(s, "b"))],
        )
    assert ended == [{"b": OK}]


def test_a_playbook_whose_groups_have_all_failed_ends(ansible: Ansible) -> None:
    ansible.held["a2"] = Event()

    def refuse(_: TaskEvent) -> None:
        raise ValueError("full")

    timer = Timer(5, ansible.held["a2"].set)  # so that a failure has an end
    timer.start()
    with pytest.raises(ValueError, match="full"):
        work(ansible, [lambda s: ask(s, "a1", "a2", on_event=refuse), lambda s: ask(s, "b1")])
    assert not ansible.held["a2"].is_set()
    timer.cancel()
    timer.join()


@pytest.mark.usefixtures("patient")
def test_a_request_fails_alone_if_no_thread_can_start(
    ansible: Ansible, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoThread(Thread):
        def start(self) -> None:
            monkeypatch.setattr(shared_playbooks, "Thread", Thread)  # the next one can start
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(shared_playbooks, "Thread", NoThread)
    ends: list[object] = []

    def group(shared: SharedPlaybooks, host: str) -> None:
        try:
            ends.append(ask(shared, host))
        except RuntimeError as problem:
            ends.append(str(problem))

    work(ansible, [lambda s: group(s, "a"), lambda s: group(s, "b")])
    assert ends[0] == "can't start new thread"
    assert ends[1] in ({"a": OK}, {"b": OK})
    assert ansible.limits in ([["a"]], [["b"]])


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({}, [Fraction(8, 64)]),  # without a limit of the bandwidth, a fork for each host
        ({"bandwidth": True}, [WHOLE]),
        ({"forks": 8}, [WHOLE]),
    ],
)
def test_groups_that_work_have_equal_shares(
    ansible: Ansible, options: dict[str, Any], shares: list[Fraction]
) -> None:
    four = [[f"{name}{number}" for number in range(4)] for name in "ab"]
    work(ansible, [lambda s: ask(s, *four[0]), lambda s: ask(s, *four[1])], **options)
    assert [share for *_, share in ansible.calls] == shares


def test_hosts_that_have_ended_give_their_share_back(ansible: Ansible) -> None:
    ansible.held = {"a1": Event()}
    work(
        ansible,
        [lambda s: ask(s, "a1"), lambda s: [ask(s, "b1"), ask(s, "b2"), ansible.held["a1"].set()]],
        bandwidth=True,
    )
    assert [share for *_, share in ansible.calls] == [WHOLE, HALF]


def test_a_playbook_waits_until_its_share_is_free(ansible: Ansible) -> None:
    ansible.held, order = {"a1": Event(), "a2": Event()}, []

    def note(event: TaskEvent) -> None:
        order.append(event.host)
        if event.host == "b3":
            ansible.held["a2"].set()

    def waits(shared: SharedPlaybooks) -> None:
        ask(shared, "b1")
        Timer(0.2, ansible.held["a1"].set).start()
        ask(shared, "b2", "b3", on_event=note)

    work(ansible, [lambda s: ask(s, "a1", "a2", on_event=note), waits], forks=3)
    assert ansible.calls[1] == ("install.yml", ["b2", "b3"], HALF)
    assert order.index("b2") > order.index("a1")


def test_ctrl_c_ends_everything(ansible: Ansible) -> None:
    """Also a group that waits for its share, and one whose own hosts have ended."""
    ansible.held = {"a1": Event(), "a2": Event()}
    ended = []

    def interrupts(shared: SharedPlaybooks) -> None:
        ended.append(ask(shared, "b1"))
        signal.pthread_kill(int(main_thread().ident or 0), signal.SIGINT)
        ask(shared, "b2", "b3")

    with pytest.raises(KeyboardInterrupt):
        work(ansible, [lambda s: ask(s, "a1", "a2"), interrupts], forks=3)
    assert ended == [{"b1": OK}]
    assert ansible.stopping.is_set()


@pytest.mark.parametrize("seed", range(20))
def test_all_playbooks_together_never_use_more_than_there_is(
    ansible: Ansible, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_playbooks, "_TOGETHER", 0.005)
    chance, lock = random.Random(seed), Lock()  # noqa: S311 (no secret)
    forks, most = chance.choice((1, 3, 8, 64)), [Fraction(0)]
    used: dict[int, tuple[Fraction, int]] = {}  # of each playbook: the bandwidth, and the forks

    def run(
        name: str, *, limit: Sequence[str], extravars: Mapping[str, Any],  # noqa: ARG001
        on_event: Callable[[TaskEvent], None], share: Fraction,
    ) -> dict[str, HostRun]:  # fmt: skip
        me, own = id(limit), int(forks * share)
        slots = min(own, len(limit))
        for left in range(len(limit), 0, -1):
            with lock:
                used[me] = (share * min(left, slots) / slots, min(left, own))
                assert sum(bandwidth for bandwidth, _ in used.values()) <= 1
                assert sum(number for _, number in used.values()) <= forks
                most[0] = max(most[0], sum(bandwidth for bandwidth, _ in used.values()))
            Event().wait(chance.random() / 500)
            with lock:
                used[me] = (share * min(left - 1, slots) / slots, min(left - 1, own))
            on_event(TaskEvent(limit[left - 1], "End", "ok", {}, final=OK))
        return dict.fromkeys(limit, OK)

    def group(shared: SharedPlaybooks, name: int, waves: list[int]) -> int:
        for number, size in enumerate(waves):
            hosts = [f"{name}-{number}-{each}" for each in range(size)]
            assert ask(shared, *hosts) == dict.fromkeys(hosts, OK)
        return sum(waves)

    ansible.run = run  # type: ignore[method-assign]
    sizes = [[chance.randint(1, 12) for _ in range(chance.randint(1, 4))] for _ in range(5)]
    jobs = [lambda s, n=name, w=waves: group(s, n, w) for name, waves in enumerate(sizes)]
    assert work(ansible, jobs, forks, bandwidth=True) == [sum(waves) for waves in sizes]
    assert most[0] > Fraction(1, 2)


def test_the_few_nodes_of_a_group_do_not_queue_behind_the_many_of_another(ansible: Ansible) -> None:
    many = [f"b{number}" for number in range(10)]
    ansible.held = {host: Event() for host in many}
    served = []

    def let_go() -> None:
        for event in ansible.held.values():
            event.set()

    def few(shared: SharedPlaybooks) -> None:
        ask(shared, "a1")
        served.append("a1")
        ask(shared, "a2")
        served.append("a2")
        let_go()

    def all_of_b(shared: SharedPlaybooks) -> None:
        ask(shared, *many)
        served.append("b")

    timer = Timer(10, let_go)  # so that a failure has an end
    timer.start()
    work(ansible, [few, all_of_b], forks=4)
    timer.cancel()
    timer.join()
    assert served == ["a1", "a2", "b"]
    assert sorted(map(len, ansible.limits)) == [1, 1, 10]
