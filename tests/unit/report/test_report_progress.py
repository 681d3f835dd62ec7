import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from fleetbuild.models import Event
from fleetbuild.report import Output
from fleetbuild.report.board import Board
from fleetbuild.report.progress import line, listening, rows, waiting


def event(**more: Any) -> Event:
    return Event.model_validate({"time": "t", "stage": "build", "state": "progress", **more})


EVENTS = [
    event(state="started", group="cpu-avx2-cp311", node="n1", package="hnswlib"),
    event(group="cpu-avx2-cp311", done=3, total=9, message="bindings.cpp"),
    event(state="failed", group="cpu-avx2-cp311", message="killed\x1b[2J", fix="add memory"),
    event(stage="done", state="ok", seconds=61.0),
]


def send(out: Output) -> None:
    with listening(out) as on_event:
        for each in EVENTS:
            on_event(each)


def test_lines_are_stable_and_hold_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    send(Output())
    assert capsys.readouterr().out.splitlines() == [
        "cpu-avx2-cp311 build started n1 hnswlib",
        "cpu-avx2-cp311 build failed killed",
        "  fix: add memory",
        "all done ok (1 min 01)",
    ]


def test_verbose_lines_show_progress(capsys: pytest.CaptureFixture[str]) -> None:
    send(Output(verbose=True))
    assert "cpu-avx2-cp311 build progress [3/9] bindings.cpp" in capsys.readouterr().out


def test_a_node_that_is_awaited_has_a_line_with_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = {"group": "g", "node": "n1", "message": "waiting for n1 (40 s)", "seconds": 40}
    with listening(Output()) as on_event:
        on_event(event(state="waiting", stage="install", **said, time="2026-01-02T03:04:05+00:00"))
    assert re.fullmatch(
        r"\d\d:\d\d:05 g install waiting n1 waiting for n1 \(40 s\)\n", capsys.readouterr().out
    )


def test_json_is_an_event_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json=True)
    send(out)
    out.say("for people")
    captured = capsys.readouterr()
    assert [Event.model_validate(json.loads(line)) for line in captured.out.splitlines()] == EVENTS
    assert captured.err == "for people\n"


def test_waiting_is_silent_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ({}, {"json": True}, {"json": True, "verbose": True}):
        with waiting(Output(**options), "Probing") as on_event:
            on_event(EVENTS[0])
    assert capsys.readouterr() == ("", "")
    with waiting(Output(verbose=True), "Probing") as on_event:
        on_event(EVENTS[0])
    assert "started" in capsys.readouterr().out


def test_rows_show_step_and_time_left(rendered: Callable[..., str]) -> None:
    board = Board()
    board.take(EVENTS[0], 0)
    board.take(EVENTS[1], 10)
    head, row = rendered(rows(board, 30)).splitlines()
    assert head.split() == ["group", "stage", "step", "nodes", "time", "left"]
    assert row.split() == [
        "cpu-avx2-cp311", "build", "[3/9]", "30", "s", "~1", "min", "00", "bindings.cpp",
    ]  # fmt: skip


def test_a_terminal_hears_of_failures_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = Output()
    assert out.live
    send(out)
    with waiting(out, "Probing 2 nodes") as on_event:
        on_event(event(stage="probe", state="ok", node="n1"))
    shown = capsys.readouterr().out
    assert "cpu-avx2-cp311 build failed killed" in shown
    assert "fix: add memory" in shown


def test_an_event_of_a_node_alone_names_it() -> None:
    assert line(event(stage="probe", state="unreachable", node="n1", message="no route")) == (
        "n1 probe unreachable no route"
    )


def test_a_long_message_does_not_push_the_numbers_out(rendered: Callable[..., str]) -> None:
    board = Board({"cpu-avx2-cp311": 2}, now=0)
    board.take(event(group="cpu-avx2-cp311", done=3, total=9, message="x" * 500), 10)
    for width in (60, 80, 120):
        _, row = rendered(rows(board, 30, width), width).splitlines()
        assert row.startswith("cpu-avx2-cp311  build  [3/9]  0/2")
        assert len(row) <= width
