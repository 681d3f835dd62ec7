"""What a reader of a log sees: sentences with times, at a bounded rate."""

import re
from typing import Any

from fleetbuild.cli.show.board import Board
from fleetbuild.cli.show.log_lines import PACE, LogLines, still_running
from fleetbuild.models import Event

NODES = tuple(f"n{number}" for number in range(1, 201))


def event(stage: str, state: str, **more: Any) -> Event:
    return Event.model_validate({"stage": stage, "state": state, **more})


class Log:
    def __init__(self, **options: Any) -> None:
        self.board = Board({"g": NODES})
        self.lines = LogLines(self.board, **options)
        self.at = 0.0

    def __call__(self, stage: str, state: str, after: float = 0, **more: Any) -> list[str]:
        self.at += after
        this = event(stage, state, **more)
        self.board.take(this, self.at)
        return [unstamped(line) for line in self.lines.take(this, self.at)]


def unstamped(line: str) -> str:
    if not line.startswith("  "):
        assert re.match(r"\d\d:\d\d:\d\d ", line), line
    return re.sub(r"^\d\d:\d\d:\d\d ", "", line)


def test_a_compilers_output_is_logged_at_intervals() -> None:
    log = Log()
    log("build", "started", group="g", node="n1", package="torch", message="2.6.0")
    compiled = {"group": "g", "node": "n1", "package": "torch", "total": 400}
    said = [
        log(
            "build", "progress", after=5, done=number, message=f"[{number}/400] CXX a.o", **compiled
        )
        for number in range(1, 121)
    ]
    told = [line for lines in said for line in lines]
    assert len(told) == 600 / PACE
    assert told[0] == "g: building torch on n1 [6/400]: CXX a.o (30 s so far)"


def test_many_nodes_are_a_few_lines() -> None:
    log = Log()
    log("install", "started", group="g", nodes=NODES, message="200 nodes")
    said = [
        log("activate", "ok", after=1, group="g", node=name, message="active") for name in NODES
    ]
    told = [line for lines in said for line in lines]
    assert len(told) <= 200 / PACE
    assert told[0] == "g: n30 active, 30 of 200 in the group"


def test_an_unreachable_node_does_not_count_as_one_that_serves() -> None:
    log = Log()
    log("install", "started", group="g", nodes=NODES[:2], message="2 nodes")
    log("install", "unreachable", group="g", node="n2", message="no route to host")
    serving = log("activate", "ok", after=60, group="g", node="n1", message="active")
    assert serving[-1] == "g: n1 active, 1 of 200 in the group"


def test_nodes_that_fail_share_a_line_and_the_end_says_why() -> None:
    log = Log()
    log("install", "started", group="g", nodes=NODES[:3], message="3 nodes")
    why = {"message": "The disk is full.", "fix": "df -h", "log": "runs/1-install.log"}
    for name in NODES[:3]:
        assert log("install", "failed", group="g", node=name, **why) == []
    assert log("install", "skipped", group="g", nodes=NODES[3:5], message="n1 failed.") == [
        "failed to install: n[1-3]",
        "g: not reached: n[4-5]",
    ]
    assert [unstamped(line) for line in log.lines.without_end()] == [
        "failed to install: n[1-3]: The disk is full.",
        "  fix: df -h",
        "  log: runs/1-install.log",
    ]


def test_a_node_whose_words_are_quoted_is_named_once() -> None:
    about = {"node": "n1", "group": "g", "message": "n1 says: no space."}
    assert Log(verbose=True)("install", "failed", **about) == [
        "g: n1 failed to install and says: no space."
    ]
    assert Log(verbose=True)("build", "failed", package="torch", **about) == [
        "g: torch failed to build on n1, which says: no space."
    ]
    log = Log()
    assert log("install", "failed", **about) == []
    assert [unstamped(line) for line in log.lines.without_end()] == [
        "failed to install: n1 says: no space."
    ]


def test_nodes_that_do_not_answer_are_named_and_the_end_of_the_run_says_why() -> None:
    log = Log()
    gone = {"message": "no route to host", "fix": "bring it back"}
    assert log("probe", "unreachable", node="n1", done=1, total=3, **gone) == []
    assert log("probe", "unreachable", node="n2", done=2, total=3, **gone) == []
    assert log("probe", "ok", node="n3", done=3, total=3) == [
        "1 node answered, 2 did not: n[1-2]",
    ]
    assert log("check", "unreachable", node="n1", group="g", **gone) == []
    assert log("fetch", "started", message="6 files") == ["fetching 6 files"]


def test_the_output_of_a_compiler_is_lines_without_escapes_and_told_once() -> None:
    reason = "The build failed.\na.cc:3: error: x\x1b[2J was not declared\nb.cc:1: error: no"
    failed = {"group": "g", "node": "n1", "package": "torch", "message": reason}
    log = Log()
    assert log("build", "failed", fix="Install x.", log="s/build.log", **failed) == [
        "g: torch failed to build on n1"
    ]
    assert [unstamped(line) for line in log.lines.without_end()] == [
        "failed to build: torch: The build failed.",
        "  | a.cc:3: error: x was not declared",
        "  | b.cc:1: error: no",
        "  fix: Install x.",
        "  log: s/build.log",
    ]


def test_nodes_at_a_long_step_are_logged_at_intervals() -> None:
    log, waiting = Log(), {"group": "g", "message": "n1 is still copying wheels (40 s)"}
    log("install", "started", group="g", nodes=NODES)
    assert log("install", "waiting", after=PACE, node="n1", **waiting) == [
        "g: n1 is still copying wheels (40 s)"
    ]
    assert log("install", "waiting", node="n2", **waiting) == []


def test_an_interrupted_run_says_how_many_nodes_are_done() -> None:
    log = Log()
    log("check", "ok", group="g", node="n1", message="up to date")
    log("activate", "ok", group="g", node="n2")
    assert log.lines.without_end() == []
    (said,) = log.lines.without_end(interrupted=True)
    assert unstamped(said) == "2 of 200 nodes done, 198 left"


def test_a_terminal_shows_only_failures_and_warnings_as_lines() -> None:
    log = Log(failures_only=True)
    assert log("build", "started", message="2 wheels") == []
    assert log("build", "failed", group="g", node="n1", package="torch", message="killed")
    assert log("build", "failed", message="2 wheels, 1 failed") == []
    assert log("label", "warning", message="no kubeconfig") == ["warning: no kubeconfig"]


def test_verbose_logs_every_event() -> None:
    log = Log(verbose=True)
    log("build", "started", group="g", node="n1", package="torch", message="2.6.0")
    assert log("build", "progress", group="g", node="n1", package="torch", done=3, total=9) == [
        "g: building torch on n1 [3/9] (0.0 s so far)"
    ]
    assert log("check", "skipped", node="n7", message="fleetbuild_skip") == [
        "skipped: n7: fleetbuild_skip"
    ]


def test_a_quiet_log_lists_what_still_runs() -> None:
    log = Log()
    assert still_running(Board(), 1) == []
    log("install", "started", group="g", nodes=("n1", "n2"))
    (said,) = still_running(log.board, 90)
    assert unstamped(said) == "g: still copying [0/200]: n[1-2] (1 min 30 so far)"


def test_a_group_whose_wheel_is_built_is_not_still_building() -> None:
    board = Board()
    for name in ("a", "b"):
        board.take(event("build", "started", group=name, nodes=(name,), package="torch"), 1)
    assert len(still_running(board, 60)) == 2
    board.take(event("build", "ok", group="b", node="b", package="torch"), 3)
    (said,) = still_running(board, 60)
    assert unstamped(said).startswith("a: still building: a: torch")
    assert board.rows()[1].said(60) == ("", "")
