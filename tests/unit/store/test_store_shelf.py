"""The store: wheels by key, files by hash, indexes by group."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetbuild.models import Floors, LockedFile, ReleaseFile
from fleetbuild.store.index import write_index
from fleetbuild.store.wheels import Store
from tests.factories import plans
from tests.factories.files import make_wheel

KEY = "0123456789abcdef0123456789abcdef"


def planned_wheel(floor="2.28", key=KEY, libstdcxx=None):
    return plans.make_wheel(
        "pkg",
        "1.0+cpu.avx2",
        plans.make_target(floor=floor),
        libstdcxx=libstdcxx,
        artifact_key=key,
        environment={"CFLAGS": "-O3"},
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def wheel(tmp_path):
    return make_wheel(tmp_path / "built", "pkg", "1.0+cpu.avx2", "cp311-cp311-linux_x86_64")


def test_an_empty_store_lists_no_wheels(store):
    assert store.list() == ()
    assert store.floors() == {}
    assert store.find(planned_wheel()) is None
    assert store.find(planned_wheel(key=None)) is None
    assert store.gc(()) == ()


def test_a_wheel_is_found_by_key_and_floor(store, wheel):
    added = store.add(wheel, planned_wheel(), built_on="a", seconds=1.25)
    kept = hashlib.sha256(added.path.read_bytes()).hexdigest()
    assert added.path.parent.name == kept == added.sha256
    assert store.find(planned_wheel()) == added
    assert store.find(planned_wheel("2.36")) == added
    assert store.find(planned_wheel("2.17")) is None
    assert store.floors() == {KEY: (Floors("2.28"),)}
    assert added.provenance.built_on == "a"
    assert added.provenance.group == "cpu-avx2-cp311"


def test_a_wheel_is_found_by_the_libstdcxx_that_it_was_checked_for(store, wheel):
    added = store.add(wheel, planned_wheel(libstdcxx="3.4.28"), built_on="a", seconds=1)
    assert store.find(planned_wheel(libstdcxx="3.4.30")) == added
    assert store.find(planned_wheel()) == added
    assert store.find(planned_wheel(libstdcxx="3.4.9")) is None
    assert store.floors() == {KEY: (Floors("2.28", "3.4.28"),)}


def test_storing_a_wheel_twice_keeps_one(store, wheel):
    store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    store.add(wheel, planned_wheel("2.17"), built_on="b", seconds=1)
    assert [stored.provenance.built_on for stored in store.list()] == ["b"]
    assert store.floors() == {KEY: (Floors("2.17"),)}


def test_damaged_wheels_count_as_absent(store, wheel):
    added = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    content = added.path.read_bytes()
    added.path.write_bytes(b"x" * len(content))
    assert store.find(planned_wheel()) is None
    store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    added.path.write_bytes(b"short")
    assert store.list() == ()
    store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    assert store.find(planned_wheel()) is not None
    (added.path.parent / "provenance.json").write_text("{}")
    assert store.list() == ()
    (added.path.parent / "provenance.json").write_text("[" * 9999)
    assert store.list() == ()


def flip(path):
    content = path.read_bytes()
    path.write_bytes(b"x" + content[1:])
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 5))


def test_a_damaged_wheel_is_removed_when_an_apply_finds_it(store, wheel):
    added = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    old = added.path.stat()
    flip(added.path)
    os.utime(added.path, (old.st_atime, old.st_mtime))  # as a disk does it
    assert store.floors() == {KEY: (Floors("2.28"),)}  # a plan reads no wheel that looks as stored
    assert store.find(planned_wheel()) is None
    assert store.floors() == {}  # so the next plan builds it
    assert not added.path.exists()
    store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    assert store.find(planned_wheel())


def test_a_plan_does_not_reuse_a_wheel_that_was_changed(store, wheel):
    added = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    os.utime(added.path, (0, added.path.stat().st_mtime + 5))
    assert store.floors() == {KEY: (Floors("2.28"),)}  # touched, not changed
    flip(added.path)
    assert store.floors() == {}
    assert store.list() == ()


def test_a_check_reads_everything_and_removes_damaged_files(store, wheel):
    good = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    bad = store.add(wheel, planned_wheel(key="f" * 32), built_on="a", seconds=1)
    short = store.add(wheel, planned_wheel(key="e" * 32), built_on="a", seconds=1)
    file, _ = store.add_file(lambda path: path.write_bytes(b"content"), "x.tar.gz")
    kept, _ = store.add_file(lambda path: path.write_bytes(b"other"), "y.tar.gz")
    assert store.check() == ()
    flip(bad.path)
    short.path.write_bytes(b"short")
    flip(file)
    assert set(store.check()) == {bad.path, short.path.parent, file}
    assert store.check() == ()
    assert store.list() == (good,)
    assert kept.exists()


@pytest.mark.parametrize("name", ["pkg", "pkg==1.0+cpu.avx2", KEY, KEY[:8], KEY[:8].upper()])
def test_wheels_are_removed_by_name_version_or_hash(store, wheel, name):
    added = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    assert store.remove("pkg==9") == store.remove(KEY[:7]) == store.remove("") == ()
    assert store.remove(name) == (added.path,)
    assert store.list() == ()


def test_gc_keeps_only_the_given_wheels_and_downloads(store, wheel):
    kept = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    store.add(wheel, planned_wheel(key="f" * 32), built_on="a", seconds=1)
    file, sha256 = store.add_file(lambda path: path.write_bytes(b"content"), "x.tar.gz")
    assert store.add_file(lambda path: path.write_bytes(b"content"), "x.tar.gz")[0] == file
    assert (file.read_bytes(), file.parent.name) == (b"content", sha256)
    removed = store.gc({KEY}, ())
    assert {path.name for path in removed} == {"f" * 32, sha256}
    assert store.list() == (kept,)


def test_files_are_fetched_once_by_hash(store, tmp_path):
    source = tmp_path / "there.zip"
    source.write_bytes(b"wheel")
    sha = hashlib.sha256(b"wheel").hexdigest()
    locked = LockedFile(
        name="x", version="1", file="../../there.zip", sha256=sha, url=source.as_uri()
    )
    path = store.fetch(locked)
    assert path == store.root / "files" / sha / "there.zip"
    source.unlink()
    assert store.fetch(locked) == path


def test_pip_reads_the_index(store, wheel, tmp_path):
    added = store.add(wheel, planned_wheel(), built_on="a", seconds=1)
    other = make_wheel(tmp_path / "built", "dep")
    files = [
        ReleaseFile(name="pkg", path=added.path, sha256=added.sha256),
        ReleaseFile(name="dep", path=other, sha256=hashlib.sha256(other.read_bytes()).hexdigest()),
    ]
    simple = write_index(tmp_path / "index", files)
    simple = write_index(tmp_path / "index", files)
    document = json.loads((simple / "pkg" / "index.json").read_text())
    assert document["files"][0]["hashes"]["sha256"] == added.sha256
    assert document["versions"] == ["1.0+cpu.avx2"]
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-cache-dir",
            ),
            *("--index-url", simple.as_uri(), "-d", str(tmp_path / "got"), "dep==1.0"),
        ],
        env={"PIP_CONFIG_FILE": "/dev/null", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / other.name).is_file()


@pytest.mark.parametrize("key", ["", "a" * 300, "/etc", "..", "../files", "a/b", "a\n", "\0"])
def test_an_invalid_key_has_no_wheels(tmp_path: Path, key: str) -> None:
    (tmp_path / "wheels").mkdir()
    assert Store(tmp_path).of_key(key) == ()


def test_missing_files_are_known_before_they_are_fetched(store):
    files = [
        LockedFile(name=n, version="1", file=f"{n}.whl", sha256=n * 64, url="http://x/", size=size)
        for n, size in (("a", 10), ("b", 200), ("c", None))
    ]
    assert store.missing_bytes(files) == 210
    path = store.path_of(files[1])
    path.parent.mkdir(parents=True)
    path.touch()
    assert store.missing_bytes(files) == 10
