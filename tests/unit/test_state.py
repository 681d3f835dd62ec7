import os
import re
from pathlib import Path

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.files import write_atomically
from fleetbuild.models import NodeResult, Result
from fleetbuild.state import StateDir, write_if_changed


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "a" / "state").create()
    assert state.root.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file cannot be written: File exists") as caught:
        StateDir(tmp_path / "file").create()
    assert "--state-dir" in caught.value.fix


def test_a_folder_of_another_user_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(UsageError, match="cannot be written: permission denied"):
        StateDir(tmp_path).create()


def test_a_result_is_loaded_again(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.last_result() is None
    result = Result(plan_digest="d", nodes=(NodeResult(node="a", state="installed"),))
    state.save_result(result, started="2026-01-01T00:00:00+00:00")
    saved = state.last_result()
    assert saved
    assert saved.result == result
    assert saved.started < saved.finished


def test_damaged_notes_of_labels_count_as_none(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for text in ("", "[]", "[" * 9999):
        state.api_labels_file.write_text(text)
        assert state.api_labelled() == {}


@pytest.mark.parametrize("damage", ["half", "null", "empty", "folder"])
def test_a_damaged_result_is_named_and_set_aside(tmp_path: Path, damage: str) -> None:
    state = StateDir(tmp_path)
    state.save_result(Result(plan_digest="d"), started="2026-11-22T12:00:00Z")
    whole = state.result_file.read_text()
    texts = {"half": whole[: len(whole) // 2], "null": "null\n", "empty": ""}
    state.result_file.unlink()
    if damage == "folder":
        state.result_file.mkdir()
    else:
        state.result_file.write_text(texts[damage])
    with pytest.raises(UsageError, match=r"result\.json, cannot be read") as caught:
        state.last_result()
    assert "mv " in caught.value.fix
    assert "It is now" in state.set_aside_damaged_result()
    assert state.set_aside_damaged_result() == ""
    assert state.last_result() is None
    assert len(list(tmp_path.glob("result-*.damaged"))) == 1


def test_a_run_saves_its_result_beside_a_damaged_one(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.result_file.write_text("null")
    state.save_result(Result(plan_digest="d"), started="2026-11-22T12:00:00Z")
    saved = state.last_result()
    assert saved is not None
    assert saved.result.plan_digest == "d"


def test_the_age_of_facts_is_saved(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.probed("a") is None
    state.mark_probed("a", "2026-01-01T00:00:00+00:00")
    when = state.probed("a")
    assert when
    assert when.year == 2026
    (state.facts / "a" / ".probed").write_text("yesterday")
    assert state.probed("a") is None


@pytest.mark.parametrize("name", ["a/cpuinfo", "n" * 300, "a\0b"])
def test_an_impossible_folder_name_was_never_probed(tmp_path: Path, name: str) -> None:
    state = StateDir(tmp_path)
    state.mark_probed("a", "2026-01-01T00:00:00+00:00")
    (state.facts / "a" / "cpuinfo").touch()
    assert state.probed(name) is None


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def broken(_: int) -> None:
        raise OSError

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match=re.escape(str(path))):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_changed_content_is_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    assert write_if_changed(path, "one")
    assert not write_if_changed(path, "one")
    assert write_if_changed(path, "two")
    path.write_bytes(b"\xff")
    assert write_if_changed(path, "two")
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_controller_keeps_its_name_and_has_another_elsewhere(tmp_path: Path) -> None:
    one, other = (StateDir(tmp_path / name).create() for name in ("one", "other"))
    name = one.controller()
    assert re.fullmatch(rf"\w+@\S+:{one.root} \([0-9a-f]{{8}}\)", name)
    assert StateDir(one.root).controller() == name
    assert other.controller().split()[-1] != name.split()[-1]
    (one.root / "controller").write_text("../../damaged\n")
    assert one.controller() != name
    assert "damaged" not in one.controller()
