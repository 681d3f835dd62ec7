"""A damaged release is made again; what serves serves on until the new one is verified."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import ALONE, plugin

# Makes an "environment" in an instant: RELEASE/bin/python and a library.
PYTHON = """#!/bin/sh
eval path=\\${$#}
mkdir -p "$path/bin" "$path/lib"
ln -s /bin/sh "$path/bin/python"
echo content >"$path/lib/core.so"
"""


class Node:
    """The releases of a node, and the calls that the role makes."""

    def __init__(self, release: ModuleType, folder: Path) -> None:
        self.release, self.root = release, release.Root(str(folder / "fb"))
        self.python = folder / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    def params(self, name: str, **manifest: Any) -> dict[str, Any]:
        return {
            **ALONE,
            "release_id": name, "wheels": [], "staging": f"{self.root.path}/wheels", "keep": 2,
        "in_use": {},
            "python": str(self.python), "manifest": {"id": name, "wheels": [], **manifest},
        }  # fmt: skip

    def complete(self, name: str) -> bool:
        return bool(self.release.look(self.root, self.params(name))["complete"])

    def make(self, name: str, **manifest: Any) -> bool:
        return bool(self.release.make(self.root, self.params(name, **manifest), False))

    def install(self, name: str) -> bool:
        made = self.make(name)
        self.mark(name)
        self.release.activate(self.root, self.params(name), False)
        return made

    def mark(self, name: str) -> None:
        file = Path(self.root[name], "manifest.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "verified": True}))

    def library(self, name: str) -> Path:
        return Path(self.root[name], "lib/core.so")


@pytest.fixture
def node(release: ModuleType, tmp_path: Path) -> Node:
    node = Node(release, tmp_path)
    node.install("old")
    node.install("new")
    assert node.complete("new")
    assert not node.make("new")
    return node


def damage(node: Node, kind: str) -> None:
    folder = Path(node.root["new"])
    if kind == "flipped byte":
        node.library("new").write_text("cOntent\n")
    elif kind == "python gone":
        (folder / "bin/python").unlink()
    elif kind == "file deleted":
        node.library("new").unlink()
    elif kind == "manifest torn":
        os.truncate(folder / "manifest.json", 20)


@pytest.mark.parametrize("kind", ["flipped byte", "python gone", "file deleted", "manifest torn"])
def test_a_damaged_release_is_repaired_beside_the_serving_one(node: Node, kind: str) -> None:
    old = node.library("old").stat().st_mtime_ns
    damage(node, kind)
    assert not node.complete("new")
    assert node.make("new")
    # It is there again, and what served serves on, from another folder, until the switch.
    assert node.complete("new")
    assert os.readlink(node.root.current) == "releases/.broken-new"
    node.mark("new")
    switched = node.release.activate(node.root, node.params("new"), False)
    assert (switched["changed"], switched["previous"]) == (True, "new")
    assert switched["pruned"] == [".broken-new"]
    assert os.readlink(node.root.current) == "releases/new"
    assert sorted(os.listdir(node.root.releases)) == ["new", "old"]
    assert node.library("old").stat().st_mtime_ns == old
    assert node.root.history() == ["old", "new"]


def test_a_repair_under_its_own_lease_leaves_nothing_aside(node: Node) -> None:
    damage(node, "flipped byte")
    known = {**node.params("new"), "controller": "me"}
    lease = node.release.begin(node.root, known, False)
    known["counter"] = lease["counter"]
    assert node.release.make(node.root, known, False)
    node.release.activate(node.root, known, False)
    assert sorted(os.listdir(node.root.releases)) == ["new", "old"]


def test_a_failed_repair_leaves_the_serving_release(node: Node) -> None:
    damage(node, "file deleted")
    node.python.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(node.release.Problem):
        node.make("new")
    assert Path(node.root.current, "bin/python").exists()
    assert node.release.go_back(node.root, ALONE, False)["release_id"] == "old"
    node.python.write_text(PYTHON)
    assert node.install("new")
    assert sorted(os.listdir(node.root.releases)) == ["new", "old"]


def test_rollback_passes_over_a_damaged_release(node: Node) -> None:
    node.install("newer")
    damage(node, "file deleted")
    with pytest.raises(node.release.Problem, match="verified and undamaged"):
        node.release.go_back(node.root, ALONE, True)  # old was removed, by keep: 2


def test_only_a_damaged_manifest_is_rewritten(node: Node) -> None:
    file = Path(node.root["new"], "manifest.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "group": "?"}))
    before = node.library("new").stat().st_ino
    assert not node.complete("new")
    assert node.make("new")
    assert node.complete("new")
    assert node.library("new").stat().st_ino == before


def test_all_files_are_on_the_disk_before_the_manifest_says_so(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = plugin("module_utils.release_files")
    order: list[str] = []

    def note(function: Any, kind: str) -> Any:
        def noted(*arguments: Any) -> Any:
            order.append(f"{kind} {os.path.basename(str(arguments[-1]))}")
            return function(*arguments)

        return noted

    monkeypatch.setattr(files, "persist", note(files.persist, "syncfs"))
    monkeypatch.setattr(files, "persist_names", note(files.persist_names, "fsync"))
    monkeypatch.setattr(files.os, "replace", note(os.replace, "rename to"))
    node.make("third")
    assert order == [
        "rename to manifest.files", "fsync third", "syncfs third",
        "rename to manifest.json", "fsync third", "fsync releases",
    ]  # fmt: skip
    order.clear()
    node.release.activate(node.root, node.params("third"), False)
    assert order == ["rename to history", "fsync fb", "rename to current", "fsync fb"]


def test_a_failed_sync_is_an_error(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    files = plugin("module_utils.release_files")
    files.persist(node.root.path)
    monkeypatch.setattr(files, "ctypes", None)
    synced: list[int] = []
    monkeypatch.setattr(files.os, "sync", lambda: synced.append(1))
    files.persist(node.root.path)
    assert synced == [1]


def test_a_full_disk_is_reported_as_such(node: Node, tmp_path: Path) -> None:
    node.python.write_text('#!/bin/sh\necho "OSError: [Errno 28] No space left on device"\nexit 1')
    with pytest.raises(OSError, match="No space left") as caught:
        node.make("third")
    assert caught.value.errno == errno.ENOSPC
    assert not os.path.exists(node.root["third"])
    assert "is full" in node.release.failure(node.root, caught.value)
    assert node.release.way_out(node.root, caught.value) == ["free-space", node.root.path]


def test_a_release_that_serves_aside_is_not_active_until_the_switch(node: Node) -> None:
    """With rollout.before, the switch is a step of its own: until then the damaged one serves."""
    damage(node, "flipped byte")
    params = {**node.params("new"), "whole": False, "activate": False, "verify": {}}
    made = node.release.install(node.root, params, False)
    assert (made["made_by"], made["active"]) == ("venv", False)
    assert node.root.serving() == ".broken-new"
    node.mark("new")
    switched = node.release.install(node.root, {**params, "whole": True, "activate": True}, False)
    assert switched["active"]
    assert node.root.serving() == "new"
