"""Many at once, none able to hold up the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fleetbuild.models import Login, Node
from fleetbuild.probe.probing import PER_BASTION, Probed, probe, run_all
from fleetbuild.probe.transport.process import LocalTransport


class Counter:
    """How many are at work at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.now -= 1


class Sleeper:
    count = Counter()

    def __init__(self, seconds: float, bastion: str | None = None) -> None:
        self.seconds, self.bastion = seconds, bastion
        self.given_up = threading.Event()
        self.slept_out = False

    def run(self, admitted: Callable[[str | None], None]) -> str:
        admitted(self.bastion)
        with self.count:
            if self.seconds < 0:
                raise ValueError(self.seconds)
            self.slept_out = not self.given_up.wait(self.seconds)
            return "done" if self.slept_out else "late"

    def abandon(self) -> None:
        self.given_up.set()


def go(jobs: list[Sleeper], *, at_once: int = 64, timeout: float = 5) -> dict[int, object]:
    Sleeper.count = Counter()  # abandoned jobs of an earlier test may still be at work
    return dict(run_all(jobs, at_once=at_once, timeout=timeout, late=lambda: "gone"))


def test_all_jobs_end_and_the_number_at_once_is_limited() -> None:
    assert go([Sleeper(0.02) for _ in range(20)], at_once=4) == dict.fromkeys(range(20), "done")
    assert Sleeper.count.most == 4


def test_a_late_job_is_abandoned_and_frees_its_slot() -> None:
    jobs = [Sleeper(60), Sleeper(60), Sleeper(0.01)]
    assert go(jobs, at_once=2, timeout=0.2) == {0: "gone", 1: "gone", 2: "done"}
    assert all(job.given_up.is_set() and not job.slept_out for job in jobs[:2])


def test_a_bastion_lets_eight_through_and_waiting_there_costs_no_deadline() -> None:
    jobs = [Sleeper(0.4, "bastion") for _ in range(3 * PER_BASTION)]
    assert set(go(jobs, timeout=1).values()) == {"done"}
    assert Sleeper.count.most == PER_BASTION


def test_an_exception_in_a_job_is_its_outcome() -> None:
    assert isinstance(go([Sleeper(-1)])[0], ValueError)


def test_leaving_the_loop_abandons_the_other_jobs() -> None:
    jobs = [Sleeper(0.01), Sleeper(60)]
    outcomes = run_all(jobs, at_once=2, timeout=60, late=lambda: "gone")
    assert next(outcomes) == (0, "done")
    outcomes.close()
    assert jobs[1].given_up.is_set()


@pytest.mark.parametrize("bastion", [None, "jump.example.org"])
def test_the_facts_say_whether_a_node_was_reached_by_way_of_a_bastion(monkeypatch, bastion):
    way = (LocalTransport(), bastion)
    monkeypatch.setattr("fleetbuild.probe.probing.transport_for", lambda *_, **__: way)
    (answer,) = probe([Node(name="n", login=Login(host="n"))]).values()
    assert isinstance(answer, Probed)
    assert answer.facts.behind_bastion is (bastion is not None)
    assert answer.facts.load is not None
