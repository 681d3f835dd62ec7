from fleetbuild.models import Event
from fleetbuild.report.board import Board


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


def test_a_new_stage_counts_afresh() -> None:
    board = Board()
    board.take(event(group="a", done=5, total=10), 0)
    board.take(event("install", "started", group="a"), 50)
    (row,) = board.rows()
    assert (row.stage, row.total, row.left(60)) == ("install", 0, None)


def test_rows_end_and_count_their_nodes() -> None:
    board = Board()
    board.take(event("verify", "ok", group="a", node="n1"), 1)
    board.take(event("verify", "failed", group="a", node="n2"), 2)
    board.take(event("build", "failed", group="b"), 3)
    board.take(event("done", "ok", group="a"), 4)
    a, b = board.rows()
    assert (a.state, a.nodes_done, a.elapsed(99)) == ("done", {"n1"}, 3)
    assert (b.state, b.elapsed(99)) == ("failed", 0)


def test_a_stage_of_the_run_is_the_stage_of_every_group_that_goes_on() -> None:
    board = Board({"a": 2, "b": 1}, now=0)
    board.take(event("build", "started"), 1)
    board.take(event("build", "failed", group="b", node="n3"), 2)
    board.take(event("install", "started"), 3)
    board.take(event("probe", "ok", node="n9"), 4)
    a, b = board.rows()
    assert (a.name, a.nodes, a.stage, a.state) == ("a", 2, "install", "running")
    assert (b.stage, b.state) == ("build", "failed")
    board.take(event("done", "ok"), 5)
    assert [row.state for row in board.rows()] == ["done", "failed"]


def test_a_run_without_groups_has_one_row() -> None:
    board = Board()
    board.take(event("probe", "started"), 0)
    board.take(event("probe", "ok", node="n1"), 1)
    assert [(row.name, row.stage) for row in board.rows()] == [("all", "probe")]


def test_a_row_counts_the_seconds_of_the_nodes_it_waits_for() -> None:
    board = Board()
    board.take(event("install", "waiting", group="a", node="n1", seconds=30), 100)
    (row,) = board.rows()
    assert row.said(110) == "waiting for n1 (40 s)"
    board.take(event("install", "ok", group="a", node="n1", message="installed"), 111)
    assert row.said(112) == "installed"
