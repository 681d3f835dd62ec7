"""Root takes files from folders of the login user, who may leave anything in there."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.files import nest
from tests.factories.role_modules import plugin
from tests.unit.roles.test_install_at_once import Node

receiving = plugin("module_utils.release_receiving")
removal = plugin("module_utils.builder.removal")
LOGIN = 4711
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone changes owners")


@pytest.fixture
def node(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose login user has sent the one wheel."""
    monkeypatch.setattr(receiving, "TIDYING", 600)  # a busy disk takes its time
    node = Node(release, tmp_path, None)
    node.params["login_uid"] = LOGIN
    shutil.move(node.params["staging"], tmp_path / "sent")
    send(node, tmp_path)
    return node


def send(node: Node, tmp_path: Path) -> None:
    (file,) = node.params["wheels"]
    folder = Path(node.begin()["incoming"], file["sha256"])
    shutil.copy(tmp_path / "sent" / file["sha256"] / file["file"], folder)


@only_root
@pytest.mark.parametrize("when", ["before the copy", "before the install", "of an earlier run"])
def test_nested_folders_of_the_login_user_stop_no_install(
    node: Node, tmp_path: Path, when: str
) -> None:
    (file,) = node.params["wheels"]
    incoming = Path(node.root.path, ".incoming")
    if when == "of an earlier run":
        (incoming / "0").mkdir()
        nest(incoming / "0", 3000, owner=LOGIN)
    else:
        nest(incoming / file["sha256"], 3000, owner=LOGIN)
    if when != "before the install":
        send(node, tmp_path)
    assert not (incoming / "0").exists()
    assert node.install()["active"]
    assert not incoming.exists()


@only_root
def test_nested_folders_that_were_sent_are_removed_with_the_releases(node: Node) -> None:
    nest(Path(node.root.path, ".incoming"), 3000)
    Path(node.root.releases).mkdir(exist_ok=True)
    switching = plugin("module_utils.release_switching")
    assert switching.take_off(node.root, {**node.params, "in_use": {}}, False)["changed"]
    assert not Path(node.root.path, ".incoming").exists()


def test_a_folder_is_removed_whatever_it_holds(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (outside / "kept").mkdir(parents=True)
    for inner in (folder, folder / "one", folder / "one" / "two"):
        inner.mkdir()
        (inner / "link").symlink_to(outside)
        (inner / "dangling").symlink_to("nowhere")
        (inner / "file").write_text("")
        os.mkfifo(inner / "pipe")
        (inner / "read only").mkdir(mode=0o500)
    nest(folder / "one" / "two", 40, "n" * 255)  # beyond the longest path
    (folder / "one" / "two").chmod(0)
    (folder / "one").chmod(0o500)
    removal.remove(str(folder))
    assert os.listdir(tmp_path) == ["outside"]
    removal.remove(str(folder))
    folder.symlink_to(outside)
    removal.remove(str(folder))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "outside", "outside/kept",
    ]  # fmt: skip


@only_root
def test_a_folder_is_roots_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its owner can put nothing into it meanwhile, such as a link in place of a folder."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o777)
    os.chown(folder, LOGIN, -1)
    nest(folder, 3, owner=LOGIN)
    (folder / "d" / "d").chmod(0o777)
    read: list[tuple[int, int]] = []
    scan = os.scandir

    def note(path: str) -> Any:
        about = os.stat(path)
        read.append((about.st_uid, about.st_mode & 0o777))
        return scan(path)

    monkeypatch.setattr(os, "scandir", note)
    removal.remove(str(folder))
    assert read == [(0, 0o700)] * 4
    assert not folder.exists()


@only_root
def test_more_than_root_removes_in_time_delays_no_install(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incoming = Path(node.root.path, ".incoming")
    for name in ("0", "1"):
        (incoming / name).mkdir()
        nest(incoming / name, 20)
    monkeypatch.setattr(receiving, "TIDYING", 0)
    send(node, tmp_path)
    assert {"0", "1"} < set(os.listdir(incoming))
    assert node.install()["active"]
    monkeypatch.setattr(receiving, "TIDYING", 600)
    node.params["release_id"] = node.params["manifest"]["id"] = "r2"
    node.begin()
    assert os.listdir(incoming) == [node.params["wheels"][0]["sha256"]]


def test_a_removal_ends_with_its_time(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    nest(folder, 3)
    with pytest.raises(OSError, match="not empty"):
        removal.remove(str(folder), time.monotonic())
    assert folder.exists()


@only_root
@pytest.mark.parametrize("stated", [True, False])
def test_a_file_of_another_size_is_not_read(
    release: ModuleType, tmp_path: Path, stated: bool
) -> None:
    """To read a TiB takes an hour; it takes no space on the disk."""
    node = Node(release, tmp_path, None)
    (file,) = node.params["wheels"]
    staged = Path(node.params["staging"], file["sha256"], file["file"])
    size = staged.stat().st_size
    file.update({"size": size} if stated else {})
    assert node.begin()["missing"] == []
    shutil.copytree(node.params["staging"], Path(node.root.path, ".incoming"))
    sent = Path(node.root.path, ".incoming", file["sha256"], file["file"])
    staged.unlink()
    os.truncate(sent, 1 << 40)
    os.chown(sent.parent, LOGIN, -1)
    node.params["login_uid"] = LOGIN
    assert node.begin()["missing"] == [file]
    with pytest.raises(release.Problem, match="arrived damaged: its size or sha256"):
        node.install()
    assert not staged.exists()


@pytest.mark.parametrize("about", [{}, {"size": 10}])
def test_of_a_file_that_grows_only_what_it_had_is_read(
    tmp_path: Path, about: dict[str, int]
) -> None:
    path, read = tmp_path / "endless", []
    path.write_bytes(bytes(10))
    for piece in receiving.pieces_of(str(path), about):
        read.append(piece)
        path.write_bytes(bytes(10 + 10 * len(read)))
    assert read == [bytes(10)]
