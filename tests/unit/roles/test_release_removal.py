"""Taking all releases off a node: releases in use and folders of other programs stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import ALONE, plugin
from tests.unit.roles.test_release import activate, make

switching = plugin("module_utils.release_switching")
LEASE = plugin("module_utils.release_lease")
making = plugin("module_utils.release_making")


@pytest.fixture
def root(release: ModuleType, tmp_path: Path) -> Any:
    made = release.Root(str(tmp_path / "fb"))
    make(made, "a", 1)
    make(made, "b", 2)
    for name in ("wheels", ".incoming", ".tools"):
        Path(made.path, name, "x").mkdir(parents=True)
    for name in "ab":
        activate(release, made, name)
    return made


def take_off(root: Any, check: bool = False, **changes: Any) -> dict[str, Any]:
    params = {**ALONE, "in_use": {}, "controller": "me", **changes}
    found: dict[str, Any] = switching.take_off(root, params, check)
    return found


def test_all_releases_go_and_what_they_shared(root: Any) -> None:
    assert take_off(root) == {
        "changed": True, "previous": "b", "release_id": "", "active": False,
        "pruned": ["a", "b"], "kept": [],
    }  # fmt: skip
    left = {path for path, _, names in os.walk(root.path) for path in (path, *names)}
    assert {Path(path).name for path in left} <= {"fb", "releases", ".lock", ".lease"}
    assert not take_off(root)["changed"]


def test_files_that_were_sent_for_a_release_that_was_never_made_go(root: Any) -> None:
    take_off(root)
    folders = [Path(root.path, name) for name in ("wheels", ".incoming")]
    for folder in folders:
        (folder / "x").mkdir(parents=True)
        assert take_off(root, check=True)["changed"]
        assert take_off(root)["changed"]
        assert not folder.exists()
    assert not take_off(root)["changed"]
    Path(root.path, ".lock").unlink()
    folders[0].mkdir()  # of another program
    assert not take_off(root)["changed"]
    assert folders[0].exists()


def test_a_release_in_use_stays_and_goes_on_serving(root: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=root["a"], stdin=-1) as user:
        try:
            done = take_off(root, in_use={"b": "The pod web/p mounts it."})
            assert done["pruned"] == []
            assert [each["release_id"] for each in done["kept"]] == ["a", "b"]
            assert str(user.pid) in done["kept"][0]["reason"]
            assert root.serving() == "b"
            assert Path(root.path, "wheels").is_dir()
        finally:
            user.kill()
    assert take_off(root)["pruned"] == ["a", "b"]


def test_a_service_that_was_started_by_the_link_keeps_its_release(root: Any) -> None:
    program = Path(root.current, "bin", "sleeps")
    program.parent.mkdir(exist_ok=True)
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"], cwd="/") as service:
        try:
            done = take_off(root)
            assert done["pruned"] == ["a"]
            assert [each["release_id"] for each in done["kept"]] == ["b"]
            assert str(service.pid) in done["kept"][0]["reason"]
            assert root.serving() == "b"
        finally:
            service.kill()
    assert take_off(root)["pruned"] == ["b"]


def test_the_releases_of_another_name_stay_with_what_they_share(
    release: ModuleType, root: Any
) -> None:
    staging = release.Root(os.path.join(root.path, "staging"))
    make(staging, "s", 1)
    activate(release, staging, "s")
    assert take_off(root)["pruned"] == ["a", "b"]
    assert staging.serving() == "s"
    assert not any(Path(root.path, name).exists() for name in ("wheels", ".incoming"))
    assert take_off(staging)["pruned"] == ["s"]
    assert Path(root.path, ".tools", "x").is_dir()


def test_folders_of_another_program_are_refused(release: ModuleType, tmp_path: Path) -> None:
    """Other deployment tools have `releases` and `current`, too."""
    others = release.Root(str(tmp_path / "app"))
    make(others, "20260101", 1)
    os.symlink("releases/20260101", others.current)
    with pytest.raises(release.Problem, match="fleetbuild did not make"):
        take_off(others)
    assert os.listdir(others.releases) == ["20260101"]


@pytest.fixture
def foreign(root: Any) -> list[str]:
    """Things in the folder of releases that fleetbuild did not make."""
    own = Path(root["venv-of-mine"])
    (own / "bin").mkdir(parents=True)
    (own / "pyvenv.cfg").touch()
    (own / "manifest.json").write_text('{"id": "venv-of-mine", "verified": true}')
    (own / "bin" / "python").touch()
    Path(root["notes.txt"]).write_text("keep")
    elsewhere = Path(root.path).with_name("data")
    elsewhere.mkdir()
    Path(root["data"]).symlink_to(elsewhere)
    return ["data", "notes.txt", "venv-of-mine"]


def test_what_fleetbuild_did_not_make_stays(root: Any, foreign: list[str]) -> None:
    done = take_off(root)
    assert (done["pruned"], done["kept"]) == (["a", "b"], [])
    assert sorted(os.listdir(root.releases)) == foreign
    assert not take_off(root)["changed"]


def test_a_switch_removes_no_folder_that_fleetbuild_did_not_make(
    release: ModuleType, root: Any, foreign: list[str]
) -> None:
    make(root, "c", 3)
    assert activate(release, root, "c", keep=2)["pruned"] == ["a"]
    assert sorted(os.listdir(root.releases)) == ["b", "c", *foreign]


def test_a_release_that_was_not_finished_goes(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(making, "make_environment", die)
    with pytest.raises(Killed):
        making.assemble(root, {"release_id": "half", "wheels": [], "python": "/p"})
    Path(root["quarter"]).mkdir()
    root.put_aside("b")  # links that an interrupted repair leaves
    assert take_off(root)["pruned"] == [".broken-b", "a", "half", "quarter"]
    assert os.listdir(root.releases) == []


def test_a_pod_that_mounts_the_link_keeps_the_release_that_serves(root: Any) -> None:
    kept = take_off(root, in_use={"current": "The pod web/p mounts it."})["kept"]
    assert kept == [{"release_id": "b", "reason": "The pod web/p mounts it."}]
    assert root.serving() == "b"


def test_a_run_of_another_controller_is_not_disturbed(root: Any) -> None:
    with LEASE.locked(root):
        LEASE.Lease(root.path).take("you", "", "b")
    with pytest.raises(plugin("module_utils.release_root").Problem, match="A run of you"):
        take_off(root)
    assert root.serving() == "b"


def test_a_check_changes_nothing_and_a_missing_folder_is_nothing_to_do(
    release: ModuleType, root: Any, tmp_path: Path
) -> None:
    assert take_off(root, check=True)["changed"]
    assert root.serving() == "b"
    nowhere = release.Root(str(tmp_path / "nowhere"))
    assert not take_off(nowhere)["changed"]
    assert not (tmp_path / "nowhere").exists()


def test_the_next_install_finds_a_usable_folder(release: ModuleType, root: Any) -> None:
    take_off(root)
    make(root, "c", 3)
    activate(release, root, "c")
    assert root.serving() == "c"
    assert json.loads(Path(root["c"], "manifest.json").read_text())["id"] == "c"
