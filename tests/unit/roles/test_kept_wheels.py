"""A wheel that another release on the node holds is not sent again."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from uv import find_uv_bin

from tests.factories.role_modules import plugin
from tests.unit.roles.test_install_at_once import Node
from tests.unit.roles.test_release_removal import take_off

receiving = plugin("module_utils.release_receiving")


@pytest.fixture
def node(release: ModuleType, tmp_path: Path) -> Node:
    """A node that serves r1, and is to get r2 of the same wheel."""
    node = Node(release, tmp_path, Path(find_uv_bin()))
    node.install()
    rename(node, "r2")
    return node


def rename(node: Node, release_id: str) -> None:
    node.params["release_id"] = release_id
    node.params["manifest"] = {**node.params["manifest"], "id": release_id}


def kept(node: Node) -> dict[str, Path]:
    """The kept wheels by the release that they belong to."""
    return {path.name.partition(".")[2]: path for path in Path(node.root.wheels).glob("*")}


@pytest.mark.parametrize("links", [True, False])
def test_it_needs_no_space_where_it_is_linked(
    node: Node, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    needed = 10**18  # more than any disk has
    size = kept(node)["r1"].stat().st_size
    free = SimpleNamespace(f_bavail=needed - size, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    node.params["space"] = needed
    if links:
        assert node.begin()["counter"]
    else:
        monkeypatch.setattr(os, "link", refuse)
        with pytest.raises(node.release.Problem, match="MB free, and the release needs"):
            node.begin()
    assert list(kept(node)) == ["r1"]
    node.params["space"] += 1
    with pytest.raises(node.release.Problem, match="MB free, and the release needs"):
        node.begin()


def refuse(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_user_who_cannot_write_sends_nothing_either(
    node: Node, release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(release, "writable", lambda *_: False)
    assert node.begin()["missing"] == []


def test_a_damaged_release_is_made_again_from_its_kept_wheel(node: Node) -> None:
    rename(node, "r1")
    next(Path(node.root["r1"]).glob("lib/python3*/site-packages/small/__init__.py")).write_text("")
    assert node.begin()["missing"] == []
    assert node.install()["active"]
    assert list(kept(node)) == ["r1"]


def test_a_removal_that_was_killed_is_made_good_by_the_next(node: Node) -> None:
    shutil.rmtree(node.root["r1"])  # killed before it came to the wheels
    node.install()
    assert list(kept(node)) == ["r2"]


def test_other_files_are_left_alone(node: Node) -> None:
    sha256 = node.params["wheels"][0]["sha256"]
    folder = Path(node.root.wheels)
    foreign = [folder / "notes", folder / f"{sha256}.gone", folder / f"{sha256[1:]}.r1"]
    foreign[0].write_text("mine")
    foreign[1].mkdir()
    foreign[2].symlink_to(foreign[0])
    node.install()
    take_off(node.root)
    assert sorted(folder.iterdir()) == sorted(foreign)


def test_a_link_is_not_followed(node: Node, tmp_path: Path) -> None:
    (wheel,) = kept(node).values()
    shutil.move(wheel, tmp_path / "elsewhere")
    wheel.symlink_to(tmp_path / "elsewhere")
    assert node.begin()["missing"] == node.params["wheels"]


def test_it_is_copied_where_files_have_one_name_only(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    assert node.install()["active"]
    assert set(kept(node)) == {"r1", "r2"}


def test_a_copy_that_goes_wrong_is_not_installed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip, where uv does not run, compares no hash."""

    def damaged(source: str, path: str, _: Any) -> str:
        Path(path).write_bytes(Path(source).read_bytes()[:-1])
        return "0" * 64

    def refused(*_: Any) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(receiving, "copy", damaged)
    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(node.release.Problem, match="arrived damaged"):
        node.install()
    assert node.root.serving() == "r1"


def test_a_kept_wheel_that_cannot_be_read_is_sent_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: Any) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(receiving.release_files, "hash_of", unreadable)
    assert node.begin()["missing"] == node.params["wheels"]


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_kept_wheels_that_cannot_be_removed_do_not_fail_the_switch(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """Somebody deletes the folder meanwhile, or has made its files immutable."""
    unlink = os.unlink

    def refused(path: Any, *rest: Any, **options: Any) -> None:
        if ".wheels/" in str(path):
            raise error(errno.EPERM, "refused", path)
        unlink(path, *rest, **options)

    node.install()
    rename(node, "r3")
    monkeypatch.setattr(os, "unlink", refused)
    assert node.install(keep=1)["pruned"] == ["r1"]
    assert node.root.serving() == "r3"


def test_a_disk_that_keeps_nothing_has_the_wheel_sent_again(
    release: ModuleType, tmp_path: Path
) -> None:
    node = Node(release, tmp_path, Path(find_uv_bin()))
    Path(node.root.wheels).write_text("")  # so that no folder can be made
    assert node.install()["active"]
    assert not Path(node.params["staging"]).exists()
    rename(node, "r2")
    assert node.begin()["missing"] == node.params["wheels"]
