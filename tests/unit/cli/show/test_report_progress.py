import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fleetbuild.cli.show import Output, progress
from fleetbuild.cli.show.board import Board
from fleetbuild.cli.show.progress import listening, rows, waiting
from fleetbuild.cli.show.text import shortened
from fleetbuild.models import Event

GROUP = "cpu-avx2-cp311"


def event(**more: Any) -> Event:
    return Event.model_validate({"stage": "build", "state": "progress", **more})


EVENTS = [
    event(state="started", group=GROUP, node="n1", nodes=["n1"], package="hnswlib", message="0.8"),
    event(group=GROUP, node="n1", done=3, total=9, message="[3/9] bindings.cpp"),
    event(
        state="failed", group=GROUP, message="killed\x1b[2J", fix="add memory", package="hnswlib"
    ),
    event(stage="done", state="ok", seconds=61.0),
]


def send(out: Output) -> None:
    with listening(out) as on_event:
        for each in EVENTS:
            on_event(each)


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)


def test_a_log_has_times_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    send(Output())
    shown = re.sub(r"\d\d:\d\d:\d\d", "TIME", capsys.readouterr().out)
    assert shown.splitlines() == [
        f"TIME {GROUP}: building hnswlib 0.8 on n1",
        f"TIME {GROUP}: hnswlib failed to build",
    ]


def test_a_quiet_log_gets_a_line_from_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    lines: list[str] = []

    def say(_: Output, *said: str) -> None:
        lines.extend(said)
        told.set()

    with listening(Output(), {GROUP: ["n1"]}) as on_event:
        on_event(EVENTS[0])
        monkeypatch.setattr(Output, "say", say)
        monkeypatch.setattr(progress, "SILENCE", 0)
        assert told.wait(30)
    assert f"{GROUP}: still building: n1: hnswlib 0.8 (" in lines[0]


def test_nodes_that_fail_last_are_left_to_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    failed = event(stage="verify", state="failed", node="n1", message="A check failed.")
    with listening(Output()) as on_event:
        on_event(failed)
        on_event(EVENTS[-1])
    assert capsys.readouterr().out == ""

    def interrupted() -> None:
        with listening(Output()) as on_event:
            on_event(failed)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().out.endswith(" failed to verify: n1: A check failed.\n")


def test_json_is_an_event_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json=True)
    send(out)
    out.say("for people")
    captured = capsys.readouterr()
    assert [Event.model_validate(json.loads(line)) for line in captured.out.splitlines()] == EVENTS
    assert captured.err == "for people\n"


def test_waiting_prints_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ({}, {"json": True}, {"json": True, "verbose": True}):
        with waiting(Output(**options), "Probing") as on_event:
            on_event(EVENTS[0])
    assert capsys.readouterr() == ("", "")
    with waiting(Output(verbose=True), "Probing") as on_event:
        on_event(EVENTS[0])
    assert "building hnswlib" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"json": True}, {"verbose": True}])
def test_a_warning_during_a_wait_is_said_once(
    capsys: pytest.CaptureFixture[str], options: dict[str, bool]
) -> None:
    warning = event(stage="check", state="warning", message="w07 has left.", fix="remove w07,")
    with waiting(Output(**options), "Probing") as on_event:
        on_event(warning)
    out, err = capsys.readouterr()
    assert (out + err).count("warning: w07 has left.") == 1
    assert "remove w07," in out + err
    assert not (options.get("json") and out)


@pytest.mark.usefixtures("at_terminal")
def test_a_warning_during_a_wait_at_a_terminal_is_said_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with waiting(Output(), "Probing") as on_event:
        on_event(event(stage="check", state="warning", message="w07 has left.", fix="remove w07,"))
    assert capsys.readouterr().err == "warning: w07 has left.\n  fix: remove w07,\n"


@pytest.mark.usefixtures("at_terminal")
def test_a_wait_names_the_awaited_nodes_and_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting(Output(), "Probing 3 nodes", ["n1", "n2", "n3"]) as on_event:
        on_event(event(stage="probe", state="ok", node="n2", done=1, total=3))
    shown = capsys.readouterr().out
    wanted = r"Probing 3 nodes … 1 of 3 answered, waiting for n\[1,3\] \(\d\.\d s\)"
    assert re.search(wanted, shown)
    with waiting(Output(), "Resolving") as on_event:
        on_event(event(stage="plan", message="reading torch"))
    assert re.search(r"Resolving … reading torch \(\d\.\d s\)", capsys.readouterr().out)


def test_a_row_shows_stage_step_time_node_and_the_last_line(rendered: Callable[..., str]) -> None:
    board = Board()
    board.take(EVENTS[0], 0)
    board.take(EVENTS[1], 10)
    head, row = rendered(rows(board, 30), 120).splitlines()
    assert head.split() == ["group", "stage", "step", "time", "left"]
    assert row.split() == [
        GROUP, "building", "[3/9]", "0:30", "~1", "min", "00", "n1:", "bindings.cpp",
    ]  # fmt: skip
    assert rows_at(board, 3700, rendered)[0].split()[3] == "1:01:40"


def rows_at(board: Board, now: float, rendered: Callable[..., str], width: int = 80) -> list[str]:
    return rendered(rows(board, now, width), width).splitlines()[1:]


@pytest.mark.usefixtures("at_terminal")
def test_a_terminal_shows_failures_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    assert out.live
    send(out)
    shown = capsys.readouterr().out
    assert f"{GROUP}: hnswlib failed to build\n" in shown.replace("\r", "")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("group", [GROUP, "sm80.sm86.sm90-avx512vnni-cp311-musl"])
def test_a_row_fits_and_keeps_its_numbers(
    rendered: Callable[..., str], group: str, width: int
) -> None:
    board = Board({group: ["n1"]}, now=0)
    compiling = event(group=group, node="n1", done=1203, total=5321, message="x" * 500 + "end.o")
    board.take(event(state="started", group=group, node="n1", nodes=["n1"], package="p"), 0)
    board.take(compiling, 10)
    (row,) = rows_at(board, 7300, rendered, width)
    assert len(row) <= width
    assert "building" in row
    assert "[1203/5321]" in row
    assert "2:01:40" in row
    if width > 60:
        assert row.endswith("d.o")


def test_a_long_line_loses_its_middle() -> None:
    assert shortened("Building CXX object a/very/long/path.o", 24) == "Building…ery/long/path.o"
    assert shortened("short", 5) == "short"
    assert shortened("longer", 5) == "long…"


def test_groups_beyond_the_terminals_height_are_counted(rendered: Callable[..., str]) -> None:
    board = Board({f"g{number}": [f"n{number}"] for number in range(30)})
    board.take(event(stage="build", state="failed", group="g0", package="p"), 1)
    lines = rendered(rows(board, 9, 80, 24), 80).splitlines()
    assert len(lines) == 23
    assert lines[1].startswith("g1 ")
    assert lines[-1] == "and 9 groups: 8 running, 1 failed"
