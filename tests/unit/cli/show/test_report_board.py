import pytest

from fleetbuild.cli.show.board import Board, brief
from fleetbuild.models import Event


def event(stage: str = "build", state: str = "progress", **more: object) -> Event:
    return Event.model_validate({"time": "t", "stage": stage, "state": state, **more})


def test_time_left_follows_the_pace_of_the_compiler() -> None:
    board = Board()
    board.take(event(state="started", group="a"), 100)
    board.take(event(group="a", done=1, total=100), 101)
    (row,) = board.rows()
    assert row.left(101) is None  # one file of a hundred tells nothing
    board.take(event(group="a", done=25, total=100), 150)
    assert row.left(150) == 150
    assert row.elapsed(160) == 60


def test_a_new_stage_restarts_the_count() -> None:
    board = Board()
    board.take(event(group="a", done=5, total=10), 0)
    board.take(event("install", "started", group="a"), 50)
    (row,) = board.rows()
    assert (row.stage, row.step(), row.left(60)) == ("install", "", None)


def test_a_build_without_step_numbers_counts_compiler_calls() -> None:
    board = Board()
    board.take(event(group="a", node="n1", done=12), 0)
    (row,) = board.rows()
    assert (row.step(), row.left(60)) == ("12 compiled", None)


def test_rows_end_with_their_last_node_and_count_them() -> None:
    board = Board({"a": ["n1", "n2", "n3"], "b": ["n4"]})
    board.take(event("install", "started", group="a", nodes=("n1",), message="1 canary"), 1)
    a, b = board.rows()
    for stage, follows in (
        ("distribute", "install"),
        ("install", "verify"),
        ("verify", "activate"),
    ):
        board.take(event(stage, "ok", group="a", node="n1"), 2)
        assert (a.stage, a.said(2), a.step()) == (follows, ("n1", ""), "[0/3]")
    board.take(event("activate", "ok", group="a", node="n1"), 3)
    board.take(event("install", "ok", group="a", nodes=("n1",), message="1 canary"), 3)
    assert (a.state, a.step()) == ("running", "[1/3]")
    board.take(event("install", "started", group="a", nodes=("n2", "n3"), message="2 nodes"), 4)
    board.take(event("distribute", "ok", group="a", node="n2"), 4)
    assert (a.stage, a.said(4)) == ("distribute", ("n3", ""))  # the slower node
    board.take(event("install", "failed", group="a", nodes=("n2",), message="2 nodes, 1 failed"), 5)
    board.take(event("install", "failed", group="a", node="n3", message="disk full"), 5)
    assert (a.state, a.step(), a.said(9)) == ("failed", "[3/3]", ("2 of 3 nodes", ""))
    board.take(event("build", "failed", group="b", message="The build failed.\na.c:1: error"), 6)
    assert (b.state, b.elapsed(99), b.said(9)) == ("failed", 6, ("", "The build failed."))
    board.take(event("done", "failed"), 7)
    assert (a.elapsed(99), b.elapsed(99)) == (5, 6)


def test_unreached_nodes_end_their_group() -> None:
    board = Board({"a": ["n1", "n2"]})
    board.take(event("install", "started", group="a", nodes=("n1",)), 1)
    board.take(event("verify", "failed", group="a", node="n1"), 2)
    board.take(event("install", "skipped", group="a", nodes=("n2",), message="n1 failed."), 3)
    (row,) = board.rows()
    assert (row.state, row.elapsed(9)) == ("failed", 3)


def test_nodes_that_are_up_to_date_need_no_install() -> None:
    board = Board({"a": ["n1", "n2"]})
    board.take(event("check", "ok", group="a", node="n1"), 1)
    board.take(event("check", "ok", group="other", node="n9"), 1)
    board.take(event("install", "started", group="a", nodes=("n2",)), 2)
    (row,) = board.rows()
    assert row.step() == "[1/2]"


def test_a_stage_of_the_run_is_the_stage_of_every_group_that_goes_on() -> None:
    board = Board({"a": ["n1", "n2"], "b": ["n3"]})
    board.take(event("probe", "ok", node="n9", done=2, total=3), 0)
    a, b = board.rows()
    assert (a.stage, a.step()) == (b.stage, b.step()) == ("probe", "[2/3]")
    lost = event("probe", "unreachable", node="n8", message="no route", done=3, total=3)
    board.take(lost, 0)
    assert (a.step(), a.said(0)) == ("[3/3]", ("", ""))  # n8 may be of another group
    board.take(event("build", "started"), 1)
    board.take(event("build", "failed", group="b", node="n3"), 2)
    board.take(event("manifests", "started"), 3)
    assert (a.stage, a.state) == ("manifests", "running")
    assert (b.stage, b.state) == ("build", "failed")
    board.take(event("done", "failed"), 5)
    assert [row.state for row in board.rows()] == ["failed", "failed"]


def test_a_run_without_groups_has_one_row_until_one_is_named() -> None:
    board = Board()
    board.take(event("probe", "started"), 0)
    board.take(event("probe", "ok", node="n1"), 1)
    assert [(row.name, row.stage) for row in board.rows()] == [("all", "probe")]
    board.take(event("verify", "started", group="a", nodes=("n1", "n2")), 2)
    board.take(event("verify", "ok", group="a", node="n1"), 3)
    (row,) = board.rows()
    assert (row.name, row.step(), row.said(3)) == ("a", "[1/2]", ("n2", ""))
    board.take(event("verify", "ok", group="a", node="n2"), 4)
    assert row.state == "done"


def test_a_row_counts_the_seconds_of_the_nodes_it_waits_for() -> None:
    board = Board({"a": ["n1"]})
    board.take(event("install", "started", group="a", nodes=("n1",)), 70)
    board.take(event("install", "waiting", group="a", node="n1", seconds=30), 100)
    (row,) = board.rows()
    assert row.said(110) == ("waiting for n1 (40 s)", "")
    board.take(event("distribute", "ok", group="a", node="n1"), 111)
    assert row.said(112) == ("n1", "")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[12/5321] Building CXX object a/b.cpp.o", "Building CXX object a/b.cpp.o"),
        ("[ 3/70] /opt/cuda/bin/nvcc --threads 2 -c -c /src/x.cu -o x.o", "compiling /src/x.cu"),
        ("x86_64-linux-gnu-gcc -O2 -I/a-c -c ./b.cpp -o b.o", "compiling ./b.cpp"),
        ("clang++-15 -c b.cc", "compiling b.cc"),
        ("# $ /usr/bin/python3 -I -m venv --without-pip v", "making its environment"),
        ("# $ v/bin/python -I -c import zipfile; z.extractall(v) p.whl", "making its environment"),
        (
            "# $ v/bin/python -I -m pip --no-input install --no-index in/a.whl",
            "installing build requirements",
        ),
        (
            "# $ v/bin/python -I -m pip --no-input wheel -v ./src",
            "starting the package's own build",
        ),
        ("# $ gcc -shared libcuda.c", "running gcc -shared libcuda.c"),
        ("running build_ext -c x", "running build_ext -c x"),
        ("g++ -shared a.o -o a.so", "g++ -shared a.o -o a.so"),
    ],
)
def test_a_compilers_line_is_shown_without_its_step_number(line: str, shown: str) -> None:
    assert brief(line) == shown


def test_a_row_names_the_nodes_that_a_probe_waits_for() -> None:
    board = Board({"g": ["n1", "n2", "n3"], "h": ["n4"]})
    board.take(Event(stage="check", state="started", message="checking"), 0)
    for done, name in enumerate(("n1", "n4", "n2"), 1):
        board.take(Event(stage="probe", state="ok", node=name, done=done, total=4), done)
    first, second = board.rows()
    assert first.said(5)[0] == "waiting for n3"
    assert second.said(5) == ("", "")
    board.take(Event(stage="check", state="ok"), 6)
    assert first.said(6)[0] == ""
