"""A release that is mounted or in use stays on the node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import ALONE, plugin
from tests.unit.roles.test_release import activate, make


@pytest.fixture
def root(release: ModuleType, tmp_path: Path) -> Any:
    root = release.Root(str(tmp_path / "fb"))
    for age, name in enumerate("abcd"):
        make(root, name, age)
        activate(release, root, name)
    return root


@contextmanager
def process(*command: str, cwd: str = "/") -> Iterator[int]:
    """A process that has said that it is ready."""
    with subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
        child.stdin.close()


WAIT = "print('ready', flush=True); sys.stdin.read()"


def kept(release: ModuleType, root: Any) -> dict[str, str]:
    found = activate(release, root, "d", keep=2)
    return {each["release_id"]: each["reason"] for each in found["kept"]}


MAPPED = """
import sys, mmap
with open({path!r} + '/manifest.json', 'rb') as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""


@pytest.mark.parametrize(
    "use",
    [
        "import sys; file = open({path!r} + '/manifest.json'); ",
        MAPPED,
        "import sys, os; os.chdir({path!r} + '/bin'); ",
    ],
    ids=["open", "mapped", "runs there"],
)
def test_a_release_that_a_process_uses_is_kept_and_collected_later(
    release: ModuleType, root: Any, use: str
) -> None:
    with process(sys.executable, "-c", use.format(path=root["a"]) + WAIT) as pid:
        found = activate(release, root, "d", keep=2)
        assert found["pruned"] == ["b"]
        (one,) = found["kept"]
        assert one["release_id"] == "a"
        assert one["reason"].startswith(f"It is in use by process {pid} (python")
    assert os.path.isdir(root["c"])
    assert activate(release, root, "d", keep=2)["pruned"] == ["a"]
    assert sorted(os.listdir(root.releases)) == ["c", "d"]


def test_a_program_of_the_release_is_known_by_its_command_line(
    release: ModuleType, root: Any
) -> None:
    os.unlink(os.path.join(root["a"], "bin", "python"))
    os.symlink(sys.executable, os.path.join(root["a"], "bin", "python"))
    with process(os.path.join(root["a"], "bin", "python"), "-c", f"import sys; {WAIT}"):
        assert list(kept(release, root)) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize("source", ["releases/a", "releases/a/bin", "."])
def test_a_release_mounted_in_another_namespace_is_kept(
    release: ModuleType, root: Any, tmp_path: Path, source: str
) -> None:
    """As a container has it: under another path, with the root folder of the node out of sight."""
    place = tmp_path / "pod"
    place.mkdir()
    opened = {".": "releases/a/manifest.json"}.get(source)
    script = f'mount --bind "{root.path}/{source}" "{place}" && '
    script += f'exec 3<"{place}/{opened}" && ' if opened else ""
    script += "echo ready && cat"
    with process("unshare", "--mount", "--propagation", "private", "sh", "-c", script):
        reasons = kept(release, root)
    assert list(reasons) == ["a"]
    assert ("mounted" in reasons["a"]) == (source != ".")


def test_releases_named_by_the_controller_are_kept(release: ModuleType, root: Any) -> None:
    told = {"a": "The pod web/p mounts it."}
    params = {**ALONE, "release_id": "d", "keep": 2, "in_use": told}
    found = release.activate(root, params, False)
    assert found["pruned"] == ["b"]
    assert found["kept"] == [{"release_id": "a", "reason": "The pod web/p mounts it."}]


def test_the_release_that_a_rollback_returns_to_stays(release: ModuleType, root: Any) -> None:
    make(root, "e", 9, verified=False)
    activate(release, root, "e")
    make(root, "f", 10)
    assert activate(release, root, "f", keep=1)["pruned"] == ["a", "b", "c", "e"]
    assert release.go_back(root, ALONE, False)["release_id"] == "d"


def test_ended_and_unreadable_processes_are_skipped(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for name in ("self", "7", "8"):
        (proc / name).mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/x rw\n")
    (proc / "7" / "mountinfo").write_bytes(
        b"short\n2 1 8:1 /fb\\040x/releases/a /rel rw - ext4 /dev/x rw\n"
    )
    (proc / "7" / "comm").write_bytes(b"evil\x1b[2J\n")
    module = plugin("module_utils.releases_in_use")
    found = module.find_uses(["/fb x/releases/a", "/fb x/releases/b"], str(proc))
    assert found == {"/fb x/releases/a": "It is mounted by process 7 (evil[2J)."}


def test_without_old_releases_no_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    module = plugin("module_utils.releases_in_use")
    monkeypatch.setattr(module, "_processes", lambda proc: pytest.fail(f"{proc} is read"))
    assert module.find_uses([]) == {}


def test_many_processes_take_little_time(tmp_path: Path) -> None:
    """100 containers with 200 mounts each, four processes in each."""
    proc = tmp_path / "proc"
    lines = "".join(f"{n} 1 0:{n} / /m/{n} rw - tmpfs t rw\n" for n in range(200))
    for number in range(1, 101):
        for thread in range(4):
            path = proc / f"{number * 10 + thread}"
            (path / "ns").mkdir(parents=True)
            (path / "ns" / "mnt").symlink_to(f"mnt:[{number}]")
            (path / "mountinfo").write_text(lines)
            (path / "maps").write_text("7f-8f r-xp 0 08:01 5 /usr/lib/libc.so\n" * 50)
    (proc / "self").mkdir()
    (proc / "self" / "mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/x rw\n")
    module = plugin("module_utils.releases_in_use")
    began = time.process_time()
    assert module.find_uses(["/fb/releases/a"], str(proc)) == {}
    assert time.process_time() - began < 3
