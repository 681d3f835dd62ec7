"""Other users of the controller and of a node: what they own, can write or hold changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fleetbuild.ansible import _watch
from fleetbuild.cli import app
from fleetbuild.errors import PlanFileError
from fleetbuild.models.config import Hook
from fleetbuild.plan.document.files import read_plan, save_plan
from fleetbuild.plan.document.serialize import with_digest
from tests.factories import runs
from tests.factories.role_modules import ALONE, ROLES, plugin

NOBODY = 65534
leases, roots, switching = (
    plugin(f"module_utils.release_{name}") for name in ("lease", "root", "switching")
)
in_use = plugin("module_utils.releases_in_use")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    plan = runs.plan(runs.group("avx2", ["a"]))
    hook = Hook(playbook="/tmp/drain.yml")
    rollout = plan.rollout.model_copy(update={"before": hook})
    path = tmp_path / "plan.json"
    save_plan(with_digest(plan.model_copy(update={"rollout": rollout})), path)
    return path


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_plan_that_others_can_write_is_refused(plan_file: Path, mode: int) -> None:
    plan_file.chmod(mode)
    with pytest.raises(PlanFileError, match="can be written by other users") as caught:
        read_plan(plan_file)
    assert "chmod go-w" in str(caught.value.fix)
    ended = CliRunner().invoke(app, ["apply", str(plan_file)])
    assert ended.exit_code == 2


@as_root
def test_a_plan_of_another_user_is_refused(plan_file: Path) -> None:
    os.chown(plan_file, 65534, 65534)
    with pytest.raises(PlanFileError, match="belongs to nobody, and applying it runs commands"):
        read_plan(plan_file)
    link = plan_file.with_name("link.json")
    link.symlink_to(plan_file)
    with pytest.raises(PlanFileError, match="belongs to nobody"):
        read_plan(link)


def test_apply_shows_the_hooks_of_a_saved_plan(plan_file: Path) -> None:
    ended = CliRunner().invoke(app, ["apply", str(plan_file)])
    assert "Before each switch: playbook /tmp/drain.yml (at most 300 s)" in ended.output


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, as /opt is."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def neighbour(code: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process of another user, from its first word on."""
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    with subprocess.Popen(
        [python, "-c", f"{code}\nimport sys; print('ready', flush=True); sys.stdin.read()"],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env=dict(env or {}), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        child.kill()


HOLD = """
import fcntl
try:
    held = open({path!r}, "rb")
    fcntl.flock(held, fcntl.LOCK_EX)
except OSError:
    pass
"""


@as_root
@pytest.mark.parametrize("made_earlier", [False, True])
def test_another_user_cannot_hold_the_lock_of_the_releases(
    open_folder: Path, made_earlier: bool
) -> None:
    root = roots.Root(str(open_folder / "fb"))
    lock = Path(root.path, ".lock")
    if made_earlier:
        lock.parent.mkdir()
        lock.touch(0o644)
    with leases.locked(root):
        pass
    with neighbour(HOLD.format(path=str(lock))):
        began = time.monotonic()
        with leases.locked(root):
            assert time.monotonic() - began < 1


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_releases_of_a_name_in_a_folder_of_another_user_are_refused(
    open_folder: Path, mode: int
) -> None:
    base = open_folder / "fb"
    root = roots.Root(str(base / "staging"))
    Path(root.releases).mkdir(parents=True)
    root.check(str(base))
    base.chmod(mode)
    if mode == 0o755:
        os.chown(base, NOBODY, NOBODY)
    with pytest.raises(roots.Problem, match=r"belongs to user|can be written by other users"):
        root.check(str(base))


def test_every_step_of_an_install_names_the_folder_above_the_releases() -> None:
    def tasks(part: Any) -> Iterator[dict[str, Any]]:
        for task in part or []:
            yield task
            yield from tasks(task.get("block"))

    steps = [
        task["fleetbuild.core.release"]
        for file in (ROLES / "install_wheel/tasks").glob("*.yml")
        for task in tasks(yaml.safe_load(file.read_text()))
        if "fleetbuild.core.release" in task
    ]
    assert len(steps) >= 7
    assert {step.get("spec") for step in steps} == {"{{ install_wheel_spec }}"}


@pytest.fixture
def releases(open_folder: Path) -> Any:
    root = roots.Root(str(open_folder / "fb"))
    for age, name in enumerate("abcdefgh"):
        (path := Path(root[name], "bin")).mkdir(parents=True)
        (path / "python").touch()
        for file in ("manifest.json", "manifest.files"):
            Path(root[name], file).write_text(json.dumps({"id": name, "verified": True}))
        os.utime(root[name], (1000 + age, 1000 + age))
    return root


KEEP_TWO = {**ALONE, "release_id": "h", "keep": 2, "in_use": {}}


@as_root
def test_another_user_keeps_few_releases_by_standing_in_them(releases: Any) -> None:
    with ExitStack() as standing:
        for name in "abcdefg":
            standing.enter_context(neighbour(f"import os; os.chdir({releases[name]!r})"))
        assert_four_stay(releases)


@as_root
def test_another_user_keeps_few_releases_by_programs_that_run_as_root(
    releases: Any, open_folder: Path
) -> None:
    with ExitStack() as standing:
        for name in "abcdefg":
            standing.enter_context(as_su(open_folder, cwd=releases[name]))
        assert_four_stay(releases)


@contextmanager
def as_su(
    folder: Path, cwd: str = "/", env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program of root that another user started, as su is that waits for a password."""
    setuid = folder / "su"
    if not setuid.exists():
        shutil.copy("/bin/sleep", setuid)
        setuid.chmod(0o4755)
    begins = f"print('ready', flush=True); os.execv({str(setuid)!r}, ['su', '60'])"
    with neighbour(f"import os; os.chdir({cwd!r}); {begins}", env) as child:
        ends = time.monotonic() + 10
        while Path("/proc", str(child.pid)).stat().st_uid != 0:
            assert time.monotonic() < ends, "a setuid program does not run here"
            time.sleep(0.01)
        yield child


def assert_four_stay(root: Any) -> None:
    found = switching.activate(root, KEEP_TWO, False)
    assert found["pruned"] == ["a", "b"]
    assert [each["release_id"] for each in found["kept"]] == ["c", "d", "e", "f"]
    assert sorted(path.name for path in Path(root.releases).iterdir()) == [*"cdefgh"]


@as_root
def test_processes_of_another_user_that_take_long_to_read_hold_up_no_install(
    releases: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with thousands of mappings, or a page of a FUSE file that its owner never gives."""
    answered, read = threading.Event(), in_use._paths_in_use

    def reads(process: str) -> Any:
        with suppress(FileNotFoundError):  # it ended
            if Path(process).stat().st_uid == NOBODY:
                answered.wait(30)
        return read(process)

    monkeypatch.setattr(in_use, "_paths_in_use", reads)
    with neighbour(""):
        began = time.monotonic()
        found = switching.activate(releases, KEEP_TWO, False)
        took = time.monotonic() - began
        answered.set()
    assert releases.serving() == "h"
    assert took < 15  # a second for processes of others, and the rest for a busy machine
    assert [each["release_id"] for each in found["kept"]] == ["c", "d", "e", "f"]
    assert "could be read in time" in found["kept"][0]["reason"]


def test_many_mounts_and_paths_are_compared_in_linear_time() -> None:
    points = {"/" + "/".join(f"{n:05}"): ("8:1", f"/x{n}") for n in range(50_000)}
    mounts = (list(points.values()), {"/": ("8:1", "/"), **points})
    began = time.process_time()
    for n in range(50_000):
        in_use._place(mounts, "/" + "/".join(f"{n:05}") + "/lib.so")
    assert time.process_time() - began < 5
    assert in_use._place(mounts, "/0/0/0/0/7/lib.so") == ("8:1", "/x7/lib.so")
    assert in_use._place(mounts, "/elsewhere") == ("8:1", "/elsewhere")
    assert in_use._place(([], {}), "//x") is None


@as_root
def test_the_environment_of_another_user_names_no_file_to_remove(tmp_path: Path) -> None:
    assert_nothing_is_removed(tmp_path, lambda env: neighbour("", env))


@as_root
def test_the_environment_that_another_user_gives_to_su_names_none_either(
    tmp_path: Path, open_folder: Path
) -> None:
    assert_nothing_is_removed(tmp_path, lambda env: as_su(open_folder, env=env))


def assert_nothing_is_removed(
    tmp_path: Path,
    start: Callable[[Mapping[str, str]], AbstractContextManager[subprocess.Popen[str]]],
) -> None:
    shared = _watch.MEMORY / f"database-{os.getpid()}"
    shared.touch()
    private = tmp_path / f"{_watch.PREFIX}x"
    private.mkdir()
    env = {"FLEETBUILD_RUN": str(private), "_ANSIBLE_SSH_ASKPASS_SHM": shared.name}
    try:
        with start(env) as child:
            assert list(_watch.processes_of(private)) == []
            _watch.end(private)
            assert child.poll() is None
        assert shared.exists()
        assert not private.exists()
    finally:
        shared.unlink(missing_ok=True)
