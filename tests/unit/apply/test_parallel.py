"""Jobs side by side: one that fails or is interrupted, and what becomes of the others."""

from __future__ import annotations

import _thread
from threading import Event

import pytest

from fleetbuild.apply.hooks import run_in_parallel


def test_jobs_run_independently_and_results_keep_their_order() -> None:
    second = Event()

    def first() -> str:
        assert second.wait(10)
        return "first"

    def other() -> str:
        second.set()
        return "second"

    assert run_in_parallel([first, other], 2, lambda: None) == ["first", "second"]


def test_an_error_waits_for_the_others() -> None:
    ended = []

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_in_parallel([fail, lambda: ended.append(1)], 2, lambda: None)
    assert ended == [1]


def test_ctrl_c_stops_running_jobs_and_starts_no_more() -> None:
    stopping, on_start = Event(), []

    def wait() -> None:
        on_start.append(1)
        if len(on_start) == 2:
            _thread.interrupt_main()
        assert stopping.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_parallel([wait] * 5, 2, stopping.set)
    assert stopping.is_set()
    assert len(on_start) == 2
