"""Folders that another user could have prepared: state directory, install root, lock, release."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.fleet import Fleet
from fleetbuild.journal import Journal
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir
from tests.factories.role_modules import plugin

release = plugin("modules.release")
release_root = plugin("module_utils.release_root")
release_files = plugin("module_utils.release_files")


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("as it was")
    return path


def test_a_state_directory_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "state"
    link.symlink_to("real")
    for use in (StateDir(link).create, StateDir(link).checked, lambda: Fleet(state_dir=link)):
        with pytest.raises(UsageError, match="is a link") as caught:
            use()
        assert str(tmp_path / "real") in caught.value.fix


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_state_directory_that_others_write_is_refused(tmp_path, mode):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(UsageError, match="can be written by other users") as caught:
        Fleet(state_dir=state)
    assert caught.value.fix.endswith(f"chmod go-w {state}")


def test_a_state_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(UsageError, match=r"belongs to .*, and this is user 4242") as caught:
        StateDir(tmp_path).create()
    assert "--state-dir" in caught.value.fix


def test_a_lock_and_a_journal_are_not_opened_through_a_link(tmp_path, victim):
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(UsageError, match="cannot be opened"), hold_run_lock(tmp_path / "lock"):
        pass
    (tmp_path / "a.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        Journal(tmp_path / "a.jsonl").note("build started")
    assert victim.read_text() == "as it was"


@pytest.fixture
def root(tmp_path):
    made = release_root.Root(str(tmp_path / "fb"))
    Path(made.releases).mkdir(parents=True)
    made.check()
    return made


@pytest.mark.parametrize("name", ["", "releases", "releases/r1", ".lock"])
def test_a_link_on_a_node_is_refused(root, victim, name):
    path = Path(root.path, name)
    if path.is_dir():
        path.rename(victim.with_name("elsewhere"))
    path.symlink_to(victim)
    with pytest.raises(release_root.Problem, match="is a link to"):
        root.check(root["r1"])
    assert victim.read_text() == "as it was"


@pytest.mark.parametrize("name", ["", "releases", "releases/r1", ".wheels"])
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_folder_on_a_node_that_others_write_is_refused(root, name, mode):
    path = Path(root.path, name)
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    with pytest.raises(release_root.Problem, match="can be written by other users") as caught:
        root.check(root["r1"])
    assert caught.value.fix == ["take-away-writing", str(path)]


def test_a_folder_of_another_user_on_a_node_is_refused():
    found = SimpleNamespace(st_mode=stat.S_IFDIR | 0o755, st_uid=4242)
    with pytest.raises(release_root.Problem, match="belongs to user 4242") as caught:
        release_root.refuse_foreign("/opt/fleetbuild", found)
    assert caught.value.fix == ["take-ownership", "/opt/fleetbuild"]
    found.st_uid = 0  # root's, read by a login that is not root
    release_root.refuse_foreign("/opt/fleetbuild", found)


def test_every_state_of_the_module_is_checked_and_none_writes_through_a_link(root, victim):
    Path(root.path, ".lock").symlink_to(victim)
    with pytest.raises(release_root.Problem, match="is a link to"), release.locked(root):
        pass
    Path(root.path, "history.new").symlink_to(victim)
    release_files.write(f"{root.path}/history", "r1\n")
    assert victim.read_text() == "as it was"
    assert not Path(root.path, "history").is_symlink()
