from pathlib import Path

import pytest

from fleetbuild.journal import Journal


def test_the_journal_lists_builds_left_running(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal" / "a.jsonl")
    assert journal.left_running() == {}
    journal.note("build started", key="k1", node="n1")
    journal.note("build started", key="k2", node="n2")
    journal.note("build ended", key="k1", node="n1")
    journal.note("build ended", key="never started", node="n1")
    journal.note("something else")
    assert journal.left_running() == {"k2": "n2"}


def test_the_end_on_a_node_leaves_the_build_on_its_fallback_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetbuild.journal.now", lambda: "2026-11-22T12:00:00.000+00:00")
    journal = Journal(tmp_path / "a.jsonl")
    journal.note("build started", key="k1", node="n1")
    journal.note("build ended", key="k1", node="n1")
    journal.note("build started", key="k1", node="n2")
    assert journal.left_running() == {"k1": "n2"}


def test_a_build_has_begun_until_its_wheel_is_made(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.note("build started", key="k1", node="n1")
    journal.note("build ended", key="k1", node="n1", built=False)
    journal.note("build started", key="k2", node="n1")
    journal.note("build started", key="k3", node="n1")
    journal.note("build ended", key="k3", node="n1", built=True)
    assert Journal(tmp_path / "b.jsonl").begun_builds() == {"k1": "n1", "k2": "n1"}


def test_a_run_without_an_end_and_an_interrupted_one_were_stopped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    assert not journal.was_stopped()
    journal.note("run started", plan="x")
    journal.note("builder failed", reason="its run ended")
    assert Journal(tmp_path / "b.jsonl").was_stopped()
    for end, stopped in (({"error": "interrupted"}, True), ({"exit_code": 0}, False)):
        journal.note("run ended", **end)
        assert journal.was_stopped() is stopped


def test_damaged_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path).note("build started", key="k1", node="n1")
    with path.open("ab") as file:
        file.write(b'{"what": "build en\n[1]\n\xff\xfe\n' + b'{"build":' * 9999)
        file.write(b"\n")
    journal = Journal(path)
    journal.note("build started", key="k2", node="n2")
    assert journal.left_running() == {"k1": "n1", "k2": "n2"}


def test_builds_left_running_by_another_plan_are_known(tmp_path: Path) -> None:
    Journal(tmp_path / "old.jsonl").note("build started", key="k1", node="n1")
    Journal(tmp_path / "old.jsonl").note("build started", key="k2", node="n2")
    Journal(tmp_path / "new.jsonl").note("build ended", key="k1", node="n1")
    assert Journal(tmp_path / "newest.jsonl").left_running() == {"k2": "n2"}


def test_a_clock_that_jumps_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drained again after an earlier drain ended in the future: it must not be forgotten."""
    times = iter(["2030-01-01T00:00:00", "2030-01-01T00:00:01", "2026-01-01T00:00:00"])
    monkeypatch.setattr("fleetbuild.journal.now", lambda: next(times))
    first = Journal(tmp_path / "a.jsonl")
    first.note("drain started", node="n1")
    first.note("drain ended", node="n1")
    later = Journal(tmp_path / "b.jsonl")  # of another plan
    later.note("drain started", node="n1")
    assert later.left_drained() == ["n1"]
    assert Journal(tmp_path / "c.jsonl").left_drained() == ["n1"]


def test_the_last_apply_of_the_same_packages_says_how_long_a_step_takes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    assert journal.step_seconds(["torch"]) == {}

    def apply(packages: list[str], *steps: tuple[str, float, int]) -> None:
        journal.note("run started", packages=packages)
        for group, seconds, failures in steps:
            note = {"stage": "install", "group": group, "seconds": seconds, "failures": failures}
            journal.note("stage ended", **note)
            journal.note("stage ended", stage="build", group=None, seconds=900, failures=0)

    apply(["torch"], ("new", 20, 0), ("old", 51, 0), ("new", 600, 1), ("new", 22, 0))
    apply(["hnswlib"], ("new", 3, 0))
    apply(["torch"])  # nothing to install
    assert journal.step_seconds(["torch"]) == {"new": 21, "old": 51}
    assert Journal(tmp_path / "b.jsonl").step_seconds(["hnswlib"]) == {"new": 3}
    assert journal.step_seconds(["hnswlib", "torch"]) == {}
    apply(["torch"], ("new", 70, 2))  # stopped after its canaries
    assert journal.step_seconds(["torch"]) == {"new": 70}
