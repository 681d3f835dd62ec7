"""Releases: switching, going back, and removing old ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from fleetbuild.models import Config
from tests.factories.role_modules import ALONE, plugin

leases, making, switching = (
    plugin(f"module_utils.release_{name}") for name in ("lease", "making", "switching")
)
in_use = plugin("module_utils.releases_in_use")


@pytest.fixture
def root(release: ModuleType, tmp_path: Path) -> Any:
    return release.Root(str(tmp_path / "fb"))


def make(root: Any, name: str, age: int, *, verified: bool = True) -> None:
    """A complete release without anything in it."""
    path = Path(root[name])
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").touch()
    making.seal(str(path), {"id": name, "verified": verified})
    os.utime(path, (1000 + age, 1000 + age))


def activate(release: ModuleType, root: Any, name: str, keep: int = 9) -> dict[str, Any]:
    found: dict[str, Any] = release.activate(
        root, {**ALONE, "release_id": name, "keep": keep, "in_use": {}}, False
    )
    return found


def test_the_symlink_is_relative_and_replaced(release: ModuleType, root: Any) -> None:
    make(root, "a", 1)
    make(root, "b", 2)
    assert activate(release, root, "a") == {
        "changed": True, "previous": "", "pruned": [], "kept": []
    }  # fmt: skip
    assert activate(release, root, "b")["previous"] == "a"
    assert os.readlink(root.current) == "releases/b"
    assert not activate(release, root, "b")["changed"]
    assert not os.path.lexists(root.current + ".new")


@pytest.mark.parametrize("target", ["b", "back"])
def test_a_disk_error_fails_a_switch_only_before_the_link_moves(
    release: ModuleType, root: Any, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """What a run reports is what the node serves."""
    for age, name in enumerate("xab"):
        make(root, name, age)
    for name in "xa":
        activate(release, root, name)
    after = "b" if target == "b" else "x"

    def switch(failing: Callable[[], bool]) -> None:
        def fsync(_: int) -> None:
            if failing():
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fsync", fsync)
        if target == "b":
            activate(release, root, "b")
        else:
            switching.switch_back(root, False, [])

    with pytest.raises(OSError, match="Input/output error"):
        switch(lambda: True)
    assert root.serving() == "a"
    switch(lambda: root.serving() == after)
    assert root.serving() == after


def test_going_back_passes_over_releases_with_revoked_wheels(
    release: ModuleType, root: Any
) -> None:
    wheels = {
        "a": {"package": "x", "version": "1+cpu.avx", "sha256": "0" * 64},
        "b": {"package": "X.y", "version": "2+cpu.avx", "sha256": "1" * 64},
        "c": {"package": "x", "version": "3+cpu.avx", "sha256": "2" * 64},
    }
    for age, (name, wheel) in enumerate(wheels.items()):
        make(root, name, age)
        known = {"id": name, "verified": True, "wheels": [wheel], "dependencies": ["n_p==1"]}
        making.seal(root[name], known)
        activate(release, root, name)
    assert switching.switch_back(root, True, [])["release_id"] == "b"
    for revoked in ("1" * 64, "x-y==2", "x-y==2+cpu.avx"):
        assert switching.switch_back(root, True, [revoked])["release_id"] == "a"
    with pytest.raises(release.Problem, match="without a revoked wheel"):
        switching.switch_back(root, True, ["n-p==1"])


def test_each_rollback_goes_one_release_further(release: ModuleType, root: Any) -> None:
    for age, name in enumerate("abc"):
        make(root, name, age, verified=name != "b")
        activate(release, root, name)
    assert release.go_back(root, ALONE, True)["release_id"] == "a"  # b was never verified
    assert root.serving() == "c"
    assert release.go_back(root, ALONE, False) == {
        "changed": True,
        "release_id": "a",
        "previous": "c",
        "packages": [],
    }
    assert root.serving() == "a"
    with pytest.raises(release.Problem, match="no earlier release that is verified and undamaged"):
        release.go_back(root, ALONE, False)


@pytest.mark.parametrize("recorded", ["a\n", "", "a\nb\n"])
def test_a_rollback_to_no_release_leaves_what_served_in_the_history(
    release: ModuleType, root: Any, recorded: str
) -> None:
    """Also after a crash before the file got its name, or just before a switch to another one."""
    make(root, "a", 1)
    make(root, "b", 2)
    activate(release, root, "a")
    history = Path(root.path, "history")
    history.write_text(recorded)
    assert release.go_back(root, {**ALONE, "withdraw": True}, False)["previous"] == "a"
    assert not os.path.lexists(root.current)
    assert history.read_text() == "a\n"


def test_the_current_release_is_never_removed(release: ModuleType, root: Any) -> None:
    for age, name in enumerate("abcd"):
        make(root, name, age)
    activate(release, root, "b")
    activate(release, root, "a")
    # c and d never served; b served before a, and a rollback returns to it.
    assert root.outdated(2) == ["c", "d"]
    assert root.outdated(1) == ["c", "d"]
    assert root.outdated(0) == ["c", "d"]
    assert activate(release, root, "a", keep=1)["pruned"] == ["c", "d"]
    assert sorted(os.listdir(root.releases)) == ["a", "b"]


def test_an_incomplete_release_is_not_activated(release: ModuleType, root: Any) -> None:
    make(root, "a", 1)
    os.unlink(Path(root["a"], "bin", "python"))
    assert root.manifest("a") is None
    with pytest.raises(release.Problem, match="not complete"):
        activate(release, root, "a")


def test_other_wheels_under_the_current_id_are_refused(release: ModuleType, root: Any) -> None:
    make(root, "a", 1)
    activate(release, root, "a")
    params = {**ALONE, "release_id": "a", "manifest": {"wheels": [{"sha256": "1"}]}}
    with pytest.raises(release.Problem, match="serves already, with other wheels"):
        release.make(root, params, True)
    assert not release.make(root, {**ALONE, "release_id": "a", "manifest": {"id": "a"}}, True)


@pytest.mark.parametrize(
    ("name", "free"),
    [
        ("default", True),
        ("tools", True),
        ("wheels2", True),
        ("current", False),
        ("history", False),
        ("history.new", False),
        ("releases", False),
        ("wheels", False),
        ("../tools", False),
    ],
)
def test_a_reserved_release_name_is_refused(release: ModuleType, name: str, free: bool) -> None:
    assert bool(release.FREE_NAME.match(name)) == free
    try:
        Config(release=name)
    except ValidationError:
        assert not free
    else:
        assert free


def test_a_step_that_hangs_is_ended_with_an_error(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "PATIENCE", 0.2)
    # What it started holds its output as well, as a package's own programs do.
    with pytest.raises(release.Problem, match=r"/bin/sh -c .* did not end within 0\.2 s") as caught:
        making.run(["/bin/sh", "-c", "sleep 60 & sleep 60"], "?")
    assert caught.value.fix
    monkeypatch.setattr(making, "PATIENCE", 60)
    making.run(["/bin/echo", "well"], "?")
    with pytest.raises(release.Problem, match=r"^ERROR: that does not fit$"):
        making.run(["/bin/sh", "-c", "echo so; echo ERROR: that does not fit; exit 1"], "?")


def test_a_lock_that_stays_held_is_an_error(
    release: ModuleType, root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "PATIENCE", 0.2)
    with (
        leases.locked(root),
        pytest.raises(release.Problem, match=r"Another run has held .*/\.lock for 0\.2 s"),
        leases.locked(root),
    ):
        raise AssertionError("It was held.")
    with leases.locked(root):
        pass


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO])
def test_a_broken_disk_is_not_taken_for_a_missing_permission(
    release: ModuleType, root: Any, number: int
) -> None:
    error = OSError(number, os.strerror(number), f"{root.path}/.lock")
    assert release.failure(root, error) == f"{root.path}/.lock: {os.strerror(number)}."
    assert release.way_out(root, error) == ["unblock-mount", root.path]
    denied = PermissionError(errno.EACCES, "Permission denied")
    assert release.way_out(root, denied) == ["let-write"]
