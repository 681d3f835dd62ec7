"""What a person sees of a plan, an apply and a status, in golden files to be read.

One fleet, recorded: an apply in which nodes fail, at terminals of three widths, in a log and at a
terminal that cannot redraw. After an intended change: pytest --update-golden, and read the diff.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from fleetbuild.cli import app
from fleetbuild.cli.hints import Hints, started
from fleetbuild.cli.show import plan as plan_report
from fleetbuild.cli.show import progress
from fleetbuild.cli.show import result as result_report
from fleetbuild.cli.show.board import Board
from fleetbuild.cli.show.output import Output
from fleetbuild.cli.show.status import status_ending, status_table
from fleetbuild.models import Event, NodeStatus, Plan, PlannedNode, Result
from fleetbuild.models.plan import Summary
from tests.factories.runs import group, plan

GOLDEN = Path(__file__).parent / "golden"
RECORDED = json.loads((GOLDEN / "recorded.json").read_text())
EVENTS = [Event.model_validate(each) for each in RECORDED["events"]]
MIDDLE = next(at for at, each in enumerate(EVENTS) if each.message == "2 nodes")
PLACES = {"80": "xterm", "120": "xterm", "200": "xterm", "dumb": "dumb", "log": ""}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def output(place: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Output, io.StringIO]]:
    """The output of a command that was started with a limit, at a terminal or in a log."""
    stream = Terminal() if PLACES[place] else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(progress, "_redrawn", lambda *_: contextlib.nullcontext())
    monkeypatch.setenv("COLUMNS", place if place.isdecimal() else "80")
    monkeypatch.setenv("TERM", PLACES[place] or "dumb")
    values = {"inventory": "inventory.yml", "limit": "avx*", "state_dir": Path(".fleetbuild")}
    with started(Hints(typer.main.get_command(app), values)):
        yield Output(color=False), stream


def fleet() -> Plan:
    five, two = group("avx", [f"avx-{n}" for n in range(1, 6)]), group("avx2", ["avx2-1", "avx2-2"])
    no_python = PlannedNode(
        state="blocked",
        reason="Python 3.11 is not there, or lacks venv.",
        fix="Install python3.11 and python3.11-venv, or set fleetbuild_python for it.",
    )
    gone = PlannedNode(state="unreachable", reason="no route to 10.0.0.9",
                       fix="check ansible_host, the network and the firewall")  # fmt: skip
    changes = {
        "nodes": {"old-1": no_python, "old-2": no_python, "gone": gone},
        "rollout": {"canary": 1, "serial": "50%", "max_fail": 1},
        "summary": Summary(
            wheels_to_build=2, nodes_to_change=7, nodes_blocked=2, nodes_unreachable=1
        ),
    }
    return plan(five, two, **changes)


def show(out: Output, made: Plan) -> None:
    out.say("$ fleetbuild plan inventory.yml")
    out.say(plan_report.heading(made, 1.6, 12), "")
    out.show(plan_report.plan_body(made, out.columns))
    out.say("", *plan_report.plan_ending(made, {each.name: 9.0 for each in made.groups}))
    state = Path(".fleetbuild")
    out.say(*plan_report.next_lines(made, state / "plan.json", state))
    out.say("", "$ fleetbuild apply")
    board = Board(made.changes, now=0)
    with progress.listening(out, made.changes) as tell:
        for at, event in enumerate(EVENTS):
            tell(event)
            board.take(event, at)
            if at == MIDDLE and out.live:
                out.show(progress.rows(board, at + 1, out.console.width))
    result = Result.model_validate(RECORDED["result"])
    out.say(*result_report.result_lines(result, shown=made))
    out.say(*result_report.places(made, result), result_report.next_command(made, result))
    out.say("", "$ fleetbuild status inventory.yml")
    nodes = {each["node"]: NodeStatus.model_validate(each) for each in RECORDED["status"]}
    out.show(status_table(nodes))
    out.say("", *status_ending(nodes))


@pytest.mark.parametrize("place", PLACES)
def test_a_person_reads_this(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with output(place, monkeypatch) as (out, stream):
        show(out, fleet())
        width = out.columns
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    text = re.sub(r"^\d\d:\d\d:\d\d", "00:00:00", text, flags=re.MULTILINE)
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    file = GOLDEN / f"{place}.txt"
    if request.config.getoption("--update-golden"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "If it is meant: pytest --update-golden"
    if place != "log":
        wide = [line for line in text.splitlines() if len(line) > width]
        assert not [line for line in wide if "fleetbuild " not in line]  # commands stay whole
