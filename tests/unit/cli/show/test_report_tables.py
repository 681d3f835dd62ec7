import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetbuild.cli.commands.doctor import ending, table
from fleetbuild.cli.show import Output
from fleetbuild.cli.show.facts import facts_ending, facts_table
from fleetbuild.cli.show.status import going_back, status_document, status_ending, status_table
from fleetbuild.doctor import Finding
from fleetbuild.errors import FleetbuildError
from fleetbuild.models import Facts, Gpu, Libc, NodeStatus, Os, Python

GOOD = Facts(
    arch="x86_64", isa="avx2", sms=("8.6",), driver="550.54",
    gpus=(Gpu(name="RTX [3090]\x1b[31m", sm="8.6"), Gpu(name="RTX [3090]\x1b[31m", sm="8.6")),
    os=Os(id="debian", version="12"), libc=Libc(family="glibc", version="2.36"),
    pythons=(Python(path="/p", version="3.11.2", soabi="cpython-311-x86_64-linux-gnu"),),
    cpus=16, memory_gb=62.8, warnings=("GPU without a driver",),
)  # fmt: skip
GONE = Facts(state="unreachable", reason="no route to host", fix="check the network")
ODD = Facts(state="unsupported", reason="s390x is not supported", arch="s390x")


def test_each_nodes_facts_are_a_row(rendered: Callable[..., str]) -> None:
    text = rendered(facts_table({"a": GOOD, "b": GONE, "c": ODD}))
    _, a, b, c = text.splitlines()
    assert a.split() == [
        "a", "avx2", "8.6", "2x", "RTX", "[3090]", "550.54", "debian", "12", "glibc", "2.36",
        "3.11.2", "16", "63",
    ]  # fmt: skip
    assert b.split() == ["b", "unreachable"]
    assert c.split()[:2] == ["c", "unsupported"]
    assert rendered(facts_table({"d": Facts()})).splitlines()[1].split()[:2] == ["d", "unknown"]


def test_a_large_fleet_shares_rows(rendered: Callable[..., str]) -> None:
    fleet = {f"n{number}": GOOD for number in range(250)} | {"odd": ODD}
    text = rendered(facts_table(fleet))
    assert "250: n[0-249]" in text
    assert len(text.splitlines()) == 3
    assert len(rendered(facts_table(fleet, every_node=True)).splitlines()) == 252


def test_facts_end_with_warnings_and_unreachable_nodes() -> None:
    assert facts_ending({"a": GOOD, "b": GONE, "c": ODD}, 1.5) == [
        "warning: a: GPU without a driver",
        "unsupported: c: s390x is not supported",
        "unreachable: b: no route to host",
        "  fix: check the network",
        "3 nodes asked in 1.5 s, 1 ok.",
    ]


def test_status_shows_release_and_drift_of_each_node(rendered: Callable[..., str]) -> None:
    nodes = {
        "a": NodeStatus(
            node="a", state="ok", group="g", release_id="r1", packages=("hnswlib==1",),
            verified=True, drift="none", probed="2026-01-01T00:00:00+00:00",
        ),
        "b": NodeStatus(node="b", state="unreachable", reason="no route"),
        "c": NodeStatus(node="c", state="ok", drift="missing", sentence="None is there now."),
        "d": NodeStatus(node="d", state="ok"),
    }  # fmt: skip
    _, a, b, c, d = rendered(status_table(nodes)).splitlines()
    assert a.split() == ["a", "ok", "g", "r1"]
    assert b.split() == ["b", "unreachable", "-", "-"]
    assert c.split() == ["c", "missing", "-", "-"]
    assert d.split() == ["d", "no", "release", "-", "-"]
    silent, missing, alike, counts, after = status_ending(nodes)
    assert (silent, missing) == ("unreachable: b: no route", "missing: c: None is there now.")
    assert alike == "Served on each node with a release: hnswlib 1."
    assert re.fullmatch(r"4 nodes, 1 with a release, 1 drifted, read \d+ days ago.", counts)
    assert after == "Next: fleetbuild plan INVENTORY"
    assert status_document(nodes)["nodes"]["c"]["drift"] == "missing"


def test_status_names_packages_once_and_shows_all_on_request(
    rendered: Callable[..., str],
) -> None:
    both, one = ("a==1+cpu.avx2", "b==1"), ("a==1+cpu.avx", "b==2")
    nodes = {
        name: NodeStatus(node=name, state="ok", release_id="r", packages=packages)
        for name, packages in (("n1", both), ("n2", one))
    }
    assert "a==1" not in rendered(status_table(nodes))
    assert "a==1+cpu.avx2, b==1" in rendered(status_table(nodes, packages=True))
    assert status_ending(nodes)[:3] == [
        "Served on each node with a release: a 1.",
        "b 1: n1",
        "b 2: n2",
    ]


def test_nodes_of_a_large_fleet_share_rows_in_status(rendered: Callable[..., str]) -> None:
    nodes = {f"n{i}": NodeStatus(node=f"n{i}", state="ok") for i in range(60)}
    assert "60: n[0-59]" in rendered(status_table(nodes))
    assert len(rendered(status_table(nodes, every_node=True)).splitlines()) == 61


def test_doctor_shows_findings_and_fixes(rendered: Callable[..., str]) -> None:
    fine = Finding("ssh", "ok", "OpenSSH")
    odd = Finding("index", "warn", "silent", "set one")
    bad = Finding("uv", "fail", "not found", "install uv")
    assert "fix: install uv" in rendered(table([fine, odd, bad]))
    assert ending([fine]).startswith("This controller is fit. Next:")
    assert ending([fine, odd]) == "This controller is fit, with 1 warning."
    assert ending([fine, odd, bad]) == "1 problem found: apply the fixes above."


def test_tables_away_from_a_terminal_are_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show(facts_table({"a" * 300: GOOD}))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert not any(line.endswith(" ") for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.fixture
def at_terminal() -> Callable[..., list[str]]:
    """Shows a table at a terminal of some width."""

    def show(shown: Table | Text, width: int) -> list[str]:
        output, stream = Output(), io.StringIO()
        output.console = Console(file=stream, width=width, force_terminal=True, no_color=True)
        output.show(shown)
        return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in stream.getvalue().splitlines()]

    return show


def test_a_long_line_at_a_terminal_goes_on_below_its_own_start(
    at_terminal: Callable[..., list[str]],
) -> None:
    line = Text("     published numpy-2.4.6: Chooses its code at run time.", style="dim")
    assert at_terminal(Text("\n").join([Text(" = cpu"), line]), 40) == [
        " = cpu",
        "     published numpy-2.4.6: Chooses its",
        "       code at run time.",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_a_terminal_of_any_width_shows_every_word_whole(
    at_terminal: Callable[..., list[str]], width: int
) -> None:
    status = NodeStatus(
        node="gpu-node-17.example.org", state="ok", group="sm75-80-avx512-cp311",
        release_id="20261126-1a2b3c4d", packages=("torch==2.9.1", "flash-attn==2.7"),
        drift="missing", sentence="The last apply left release r1 there, and none is there now.",
    )  # fmt: skip
    for shown in (facts_table({"gpu-node-17": GOOD, "b": ODD}), status_table({"a": status})):
        cells = [str(cell) for column in shown.columns for cell in column.cells]
        lines = at_terminal(shown, width)
        assert max(map(len, lines)) <= width
        words = set(" ".join(lines).replace(";", "").split())
        assert {word for cell in cells for word in cell.split()} - {"-"} <= words


def test_a_terminal_too_narrow_for_the_table_shows_lines_for_each_row(
    at_terminal: Callable[..., list[str]],
) -> None:
    lines = at_terminal(facts_table({"gpu-1": GOOD, "b": GONE}), 60)
    assert [line.rstrip() for line in lines] == [
        "gpu-1",
        "  isa avx2; SM 8.6; GPUs 2x RTX [3090]; driver 550.54;",
        "  system debian 12; libc glibc 2.36; python 3.11.2; CPUs 16;",
        "  GB 63",
        "b",
        "  isa unreachable",
    ]


def test_text_on_stderr_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Output().warn("warning: \x1b[2Ja\u202e node\x07", "  its second line")
    Output().error(FleetbuildError("one\x1b]0;title\x07\ntwo", "\x9bthree"))
    assert capsys.readouterr().err == (
        "warning: a node\n  its second line\nerror: one two\nfix: three\n"
    )


def test_only_y_and_yes_mean_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for answer, meaning in (("y\n", True), ("Yes\n", True), ("\n", False), ("", False)):
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        assert Output().ask("Go?") is meaning
    assert capsys.readouterr().out.startswith("Go? [y/N] ")


def test_the_rollback_question_names_releases_and_nodes() -> None:
    nodes = {
        name: NodeStatus(node=name, state="ok", release_id=now, previous=before)
        for name, now, before in (("n1", "r3", "r2"), ("n2", "r3", "r2"), ("n3", "r3", None))
    }
    nodes["n4"] = NodeStatus(node="n4", state="unreachable")
    assert going_back(nodes) == [
        "n[1-2]: from release r3 to r2",
        "n3: stays at release r3: no earlier verified release is there",
        "n4: no release, or not reached",
    ]
    assert going_back({"n4": nodes["n4"]}) == ["No node serves a release."]
