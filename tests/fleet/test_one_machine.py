"""From the built wheel to an import of a package built here, as a user without root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.factories.files import make_wheel
from tests.lab import Lab

ROOT = Path(__file__).parents[2]
PYTHON = "/usr/bin/python3"  # the user has no rights to the Python of this checkout


Run = Callable[..., str]


@pytest.fixture(scope="module")
def user() -> Iterator[tuple[str, Path]]:
    """A new user of this machine, with a home."""
    if os.geteuid() != 0 or not shutil.which("useradd"):
        pytest.skip("needs root, to make a user without root")
    _remove_left_users()
    name = f"fb{os.getpid()}x{uuid.uuid4().hex[:4]}"
    subprocess.run(["useradd", "--create-home", "--base-dir", "/var/tmp", name], check=True)
    try:
        yield name, Path("/var/tmp", name)
    finally:
        subprocess.run(["userdel", "--remove", "--force", name], check=True, capture_output=True)


def _remove_left_users() -> None:
    """Remove the users of tests that a second Ctrl-C ended before they removed them."""
    for home in Path("/var/tmp").glob("fb*x*"):
        made = re.fullmatch(r"fb(\d+)x[0-9a-f]{4}", home.name)
        if made and not Path("/proc", made[1]).exists():
            subprocess.run(["userdel", "--remove", "--force", home.name], check=False)


@pytest.fixture(scope="module")
def run(user: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program as the user, who has installed fleetbuild's wheel."""
    name, home = user
    folder = tmp_path_factory.mktemp("wheel")
    build = [find_uv_bin(), "build", "-q", "--no-config", "--wheel", "-o", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = folder.glob("fleetbuild-*.whl")
    shutil.copy(wheel, home)

    def run(*words: str, umask: int = 0o022) -> str:
        own = {"HOME": str(home), "USER": name, "XDG_DATA_HOME": ""}
        done = subprocess.run(
            ["setpriv", "--reuid", name, "--regid", name, "--init-groups", *words],
            check=False, cwd=home, env={**os.environ, **own}, capture_output=True, text=True,
            timeout=1800, umask=umask,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr + done.stdout

    run(PYTHON, "-m", "venv", "venv")
    run("venv/bin/pip", "install", "-q", "--no-compile", wheel.name)  # few modules are imported
    return run


def test_three_commands_as_a_user_without_root(user: tuple[str, Path], run: Run) -> None:
    home = user[1]
    applied = run("venv/bin/fleetbuild", "apply", "--package", "xxhash==3.6.0", "--yes")
    said = run("venv/bin/fleetbuild", "run", "--", "python", "-c",
               "import xxhash; print(xxhash.__file__)")  # fmt: skip
    own = home / ".local/share/fleetbuild"
    assert said.startswith(f"{own}/releases/")
    assert applied.startswith("No inventory is named, and none is here: taking this machine")
    assert f"The release goes to {own}: you may not write to /opt/fleetbuild." in applied


UMASKS = (0o000, 0o077)


def index_with(folder: Path) -> str:
    """Make an index with a small wheel; return a fleetbuild.yml that installs it."""
    folder.chmod(0o755)
    make_wheel(folder / "wheels", "tiny", files={"tiny/__init__.py": b"value = 1\n"})
    return (
        f"packages: [tiny]\nindex: [{folder}/wheels]\nbuild: {{policy: published}}\n"
        f"install: {{path: {folder}/opt}}\n"
    )


def writable_by_others(folder: Path) -> list[Path]:
    """Return the files and folders that other users than their owner may write."""
    return [
        path for path in folder.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022
    ]


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
@pytest.mark.parametrize("who", ["root", "user"])
def test_a_run_on_this_machine_succeeds_with_any_umask(
    request: pytest.FixtureRequest, tmp_path: Path, who: str, umask: int
) -> None:
    if who == "root":
        folder, program = tmp_path, [sys.executable, "-m", "fleetbuild"]

        def run(*words: str, umask: int) -> str:
            environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
            done = subprocess.run(words, check=False, cwd=folder, env=environment, umask=umask,
                                  capture_output=True, text=True, timeout=600)  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout
    else:
        name, home = request.getfixturevalue("user")
        run, program = request.getfixturevalue("run"), [f"{home}/venv/bin/fleetbuild"]
        folder = home / f"umask{umask:o}"
        folder.mkdir()
        shutil.chown(folder, name, name)
    config = folder / "fleetbuild.yml"
    config.write_text(index_with(folder))
    own, given = ("--state-dir", str(folder / "state")), ("localhost,", "--config", str(config))
    for words in (("plan", *given), ("apply", "--yes"), ("status", *given), ("verify", *given)):
        run(*program, *words, *own, umask=umask)
    assert writable_by_others(folder / "opt") == []
    (kept,) = (folder / "opt/.wheels").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_a_run_over_ssh_without_root_succeeds_with_any_umask(
    umask_lab: Lab, tmp_path: Path, umask: int
) -> None:
    place = f"/home/fleet/umask{umask:o}"
    umask_lab.exec("n1", f"echo umask {umask:04o} > ~fleet/.bashrc", check=True)
    ssh = ["ssh", "-F", str(umask_lab.ssh_config), "n1", "umask"]
    said = subprocess.run(ssh, check=True, capture_output=True, text=True).stdout
    assert int(said, 8) == umask  # of what the node starts by ssh, sftp's server too
    config = tmp_path / "fleetbuild.yml"
    config.write_text(index_with(tmp_path).replace(f"{tmp_path}/opt", place))
    own = ("--state-dir", str(tmp_path / "state"))
    given = (str(umask_lab.inventory), "--config", str(config))
    for words in (("plan", *given), ("apply", "--yes"), ("status", *given), ("verify", *given)):
        done = subprocess.run(
            [sys.executable, "-m", "fleetbuild", *words, *own], check=False, cwd=ROOT, umask=umask,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    found = umask_lab.exec("n1", f"find {place} -perm /022 ! -type l; stat -c %a {place}/.wheels/*")
    assert found.stdout == "644\n"
    owner = umask_lab.exec("n1", f"stat -c %U {place}/releases", check=True)
    assert owner.stdout == "fleet\n"


@pytest.fixture(scope="module")
def umask_lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab({"nodes": {"n1": {"hardware": "avx2"}}})
