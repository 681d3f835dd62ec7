"""A build's process: what it may leave behind, and how its end is judged."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import plugin


def made(build: Any, work: Callable[[int], object]) -> str:
    """Run this in place of the steps, in a process of its own; return the wheel that it names."""
    build.work = lambda told, *_: (work(told), 0)[1]
    os.makedirs(build.at("in"), exist_ok=True)
    with open(build.log, "wb") as log:
        return str(build.apart(log, time.time() + 60)[0])


def test_a_wheel_that_is_a_link_is_not_taken(build: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another user")
    os.makedirs(build.at("work", "out"))
    os.symlink(tmp_path / "secret", build.at("work", "out", "a.whl"))
    with pytest.raises(OSError, match=r"a\.whl"):
        build.take("a.whl")
    assert not os.listdir(build.at("out"))


def test_an_output_folder_that_is_a_link_is_not_followed(build: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.whl").write_text("of another build")
    os.makedirs(build.at("work"))
    os.symlink(tmp_path / "elsewhere", build.at("work", "out"))
    with pytest.raises(OSError, match="out"):
        build.take("a.whl")


def test_a_build_that_reports_nothing_or_too_much_has_failed(
    wheel_build: ModuleType, build: Any
) -> None:
    with pytest.raises(wheel_build.BuildFailed, match="The build was killed"):
        made(build, lambda _: os.kill(os.getpid(), 9))
    with pytest.raises(wheel_build.BuildFailed, match="The build was killed"):
        made(build, lambda told: os.write(told, b"x" * (1 << 16)))
    with pytest.raises(wheel_build.BuildFailed, match="named no wheel"):
        made(build, lambda told: os.write(told, b'{"wheel": "../../../etc/x.whl"}'))
    assert made(build, lambda told: os.write(told, b'{"wheel": "a-1.whl"}')) == "a-1.whl"


def test_a_build_holds_no_file_of_the_process_that_reports(build: Any) -> None:
    """Neither its lock nor its output, through which a build could answer for it."""

    with open(build.at("lock"), "w") as lock:
        locked = os.fstat(lock.fileno()).st_ino

        def look(told: int) -> None:
            held = {}
            for number in range(200):
                with contextlib.suppress(OSError):
                    held[number] = os.fstat(number)
            null = os.stat(os.devnull).st_rdev
            apart = all(held[number].st_rdev == null for number in (0, 1, 2))
            apart = apart and locked not in {each.st_ino for each in held.values()}
            os.write(told, b'{"wheel": "%s.whl"}' % str(apart).encode())

        assert made(build, look) == "True.whl"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_built_before_goes_to_the_builds_user(build: Any, tmp_path: Path) -> None:
    (tmp_path / "roots").write_text("")
    os.makedirs(build.at("work", "src"))
    os.symlink(tmp_path / "roots", build.at("work", "src", "link"))
    build.make_folders("namespaces", (65534, 65534))
    assert os.lstat(build.at("work", "src", "link")).st_uid == 65534
    assert os.stat(tmp_path / "roots").st_uid == 0  # not through the link


def test_a_folder_of_another_user_is_refused(
    wheel_build: ModuleType, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.prepare()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(wheel_build.BuildFailed, match=r"build folder .* belongs to") as caught:
        build.run()
    assert caught.value.fix[0].startswith("remove-folder")


def test_each_package_and_level_has_a_cache_of_its_own(build: Any, tmp_path: Path) -> None:
    build.params["cache"] = "ccache"
    dirs = set()
    for package in ("a", "b", "../../a", "A_b"):
        build.params["package"] = package
        dirs |= {build.cache_dir(level) for level in ("namespaces", "user", "none")}
    assert len(dirs) == 9
    assert {os.path.dirname(os.path.dirname(each)) for each in dirs} == {str(tmp_path / "none")}


def test_a_wheel_built_without_isolation_does_not_count_where_it_is_required(build: Any) -> None:
    os.makedirs(build.at("out"))
    Path(build.at("out", "a.whl")).write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for level, state in (("none", "absent"), ("namespaces", "done")):
        build.write_status(state="done", file="a.whl", sha256=empty, isolation=level)
        build.params["isolation"] = "required"
        assert build.status()["state"] == state
        build.params["isolation"] = "preferred"
        assert build.status()["state"] == "done"


@pytest.mark.parametrize("level", ["namespaces", "user"])
def test_a_build_ends_with_the_process_that_reports(
    isolation: ModuleType, tmp_path: Path, level: str
) -> None:
    """Even by SIGKILL, and although the kernel forgets this wish with the user."""
    user = (65534, 65534) if os.geteuid() == 0 and level == "user" else None
    view = isolation.View({}, {str(tmp_path): str(tmp_path)}, [])
    beats = tmp_path / "log"
    reporter = os.fork()
    if reporter == 0:
        with beats.open("wb", buffering=0) as log:

            def beat(_: int) -> int:
                for _beat in range(600):
                    log.write(b".")
                    time.sleep(0.02)
                return 0

            with contextlib.suppress(isolation.CannotIsolate):
                isolation.start(beat, level, view, user, log.fileno())
                time.sleep(60)
            os._exit(3)
    while not beats.exists() or not beats.stat().st_size:
        assert os.waitpid(reporter, os.WNOHANG) == (0, 0), "cannot isolate here"
        time.sleep(0.02)
    os.kill(reporter, signal.SIGKILL)
    os.waitpid(reporter, 0)
    deadline, size = time.monotonic() + 30, -1
    while (last := beats.stat().st_size) != size:  # the kernel ends it as soon as it has time
        assert time.monotonic() < deadline
        time.sleep(0.3)
        size = last
    assert last < 600


@pytest.mark.parametrize("level", ["namespaces", "user"])
def test_a_build_reaches_neither_the_kernels_keys_nor_a_virtual_machines_host(
    isolation: ModuleType, tmp_path: Path, level: str
) -> None:
    def look(told: int) -> int:
        library = ctypes.CDLL(None, use_errno=True)
        numbers = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
        for number in (*numbers, 425):
            ctypes.set_errno(0)
            library.syscall(*map(ctypes.c_long, (number, 0, -3, 0, 0, 0)))
            os.write(told, b"%d " % ctypes.get_errno())
        for family in (socket.AF_VSOCK, socket.AF_UNIX):
            try:
                socket.socket(family).close()
                os.write(told, b"open ")
            except OSError as problem:
                os.write(told, b"%d " % problem.errno)
        return 0

    user = (65534, 65534) if os.geteuid() == 0 and level == "user" else None
    view = isolation.View({}, {str(tmp_path): str(tmp_path)}, [])
    with (tmp_path / "log").open("wb") as log:
        try:
            pid, said = isolation.start(look, level, view, user, log.fileno())
        except isolation.CannotIsolate as problem:
            pytest.skip(str(problem))
        with os.fdopen(said) as answer:
            assert answer.read() == "1 1 1 1 1 open "
        assert os.getsid(pid) == pid  # and no terminal of the process that reports
        assert os.waitpid(pid, 0)[1] == 0


def test_the_filter_is_known_for_the_machines_that_fleets_have() -> None:
    refused = plugin("module_utils.builder.refused_calls")
    assert {len(refused.program(each)) % 8 for each in ("x86_64", "aarch64")} == {0}
    assert refused.program("x86_64") != refused.program("aarch64")
    assert refused.program("riscv64") is None
