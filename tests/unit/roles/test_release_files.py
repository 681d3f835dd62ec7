"""The record of a release's files: whatever is damaged is found, by the module and by the probe."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fleetbuild.models import Manifest
from fleetbuild.probe.parsing.facts import facts_of
from tests.factories.role_modules import plugin
from tests.unit.probe.test_probe_script import run

LIBRARY = "lib/python3.11/site-packages/pkg/_core.so"


@pytest.fixture
def release_files() -> ModuleType:
    return plugin("module_utils.release_files")


@pytest.fixture
def made(release_files: ModuleType, tmp_path: Path) -> Path:
    """A release with a record, as `current`."""
    tree = tmp_path / "releases" / "r1"
    for name in (LIBRARY, "lib/python3.11/site-packages/pkg/__pycache__/x.cpython-311.pyc"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"\x7fELF" * 20)
    (tree / "bin").mkdir()
    (tree / "bin/python").symlink_to("/bin/sh")
    (tree / "lib/name with spaces and ünïcode").write_text("x")
    (tree / "lib/line\nbreak").write_text("x")
    (tree / "lib64").symlink_to("lib")
    seal(release_files, tree)
    (tmp_path / "current").symlink_to("releases/r1")
    return tree


def seal(release_files: ModuleType, tree: Path) -> None:
    text = release_files.record(str(tree))
    (tree / release_files.RECORD).write_bytes(text)
    manifest = Manifest(
        release="default", id="r1", group="g", python="/p", wheels=(), verified=True,
        files_sha256=release_files.digest(text),
    )  # fmt: skip
    (tree / "manifest.json").write_text(manifest.model_dump_json())


def found(release_files: ModuleType, tree: Path, *, thorough: bool = True) -> str:
    manifest = Manifest.model_validate_json((tree / "manifest.json").read_text())
    damage: str = release_files.damage(str(tree), manifest.files_sha256, thorough)
    return damage


def flip(path: Path, *, keep_time: bool = False) -> None:
    about = path.stat()
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    now = about.st_mtime if keep_time else about.st_mtime + 60
    os.utime(path, (now, now))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped byte": lambda tree: flip(tree / LIBRARY),
    "deleted": lambda tree: (tree / LIBRARY).unlink(),
    "truncated": lambda tree: os.truncate(tree / LIBRARY, 4),
    "added": lambda tree: (tree / "lib/sitecustomize.py").write_text("evil = 1"),
    "link": lambda tree: ((tree / "lib64").unlink(), (tree / "lib64").symlink_to("libs")),
    "record torn": lambda tree: os.truncate(tree / "manifest.files", 100),
    "record gone": lambda tree: (tree / "manifest.files").unlink(),
}


def test_an_intact_release_is_intact(made: Path, release_files: ModuleType) -> None:
    (made / "lib/python3.11/site-packages/pkg/__pycache__/new.pyc").write_text("made by an import")
    (made / "bin/fleetbuild-sanity").write_text("written when it is marked")
    assert found(release_files, made) == found(release_files, made, thorough=False) == ""
    facts = facts_of(run(made.parents[1]))
    assert (facts.damaged, facts.release["default"].verified) == ({}, True)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_by_module_and_probe(
    kind: str, made: Path, release_files: ModuleType
) -> None:
    DAMAGES[kind](made)
    assert found(release_files, made)
    assert found(release_files, made, thorough=False)
    facts = facts_of(run(made.parents[1]))
    assert facts.damaged["default"]
    assert not facts.release["default"].verified


def test_only_hashes_find_a_byte_that_changed_behind_the_file_system(
    made: Path, release_files: ModuleType
) -> None:
    flip(made / LIBRARY, keep_time=True)
    assert found(release_files, made) == f"{LIBRARY} (changed)"
    assert found(release_files, made, thorough=False) == ""


def test_the_probe_finds_a_missing_record(made: Path) -> None:
    root = made.parents[1]
    (made / "bin/python").unlink()
    assert "bin/python is missing" in facts_of(run(root)).damaged["default"]
    (made / "bin/python").symlink_to("/usr/bin/python-that-was-upgraded")
    assert "interpreter" in facts_of(run(root)).damaged["default"]
    os.truncate(made / "manifest.json", 30)
    facts = facts_of(run(root))
    assert facts.damaged == {"default": "its manifest is missing or malformed"}
    assert facts.release == {}
    made.rename(root / "elsewhere")
    assert facts_of(run(root)).damaged == {"default": "its folder is missing"}


def test_a_release_without_a_record_is_damaged(made: Path) -> None:
    manifest = Manifest.model_validate_json((made / "manifest.json").read_text())
    (made / "manifest.files").unlink()
    old = manifest.model_copy(update={"files_sha256": None})
    (made / "manifest.json").write_text(old.model_dump_json())
    facts = facts_of(run(made.parents[1]))
    assert facts.damaged == {"default": "the record of its files is missing or changed"}
    assert not facts.release["default"].verified


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_unreadable_files_do_not_count_as_damage(made: Path) -> None:
    capture = {"release-files": "release default\nrecord x\ndiffers !\ndiffers 1 2 ./lib/a"}
    capture["release"] = (made / "manifest.json").read_text()
    assert facts_of(capture).damaged == {}


def test_many_damaged_files_are_counted(made: Path, release_files: ModuleType) -> None:
    for number in range(500):
        (made / f"lib/extra{number:03}").touch()
    assert found(release_files, made) == (
        "lib/extra000 (added), lib/extra001 (added), lib/extra002 (added), and 497 more"
    )
    assert "and others" in facts_of(run(made.parents[1])).damaged["default"]


def test_the_probe_compares_twelve_thousand_files_quickly(
    made: Path, release_files: ModuleType
) -> None:
    for number in range(120):
        folder = made / f"lib/torch/include/folder-{number}"
        folder.mkdir(parents=True)
        for name in range(100):
            (folder / f"header-{name}.h").touch()
    root = made.parents[1]
    began = time.monotonic()
    run(root)
    without = time.monotonic() - began
    seal(release_files, made)
    began = time.monotonic()
    assert facts_of(run(root)).damaged == {}
    assert time.monotonic() - began - without < 2  # 0.1 s where the machine has nothing else to do
