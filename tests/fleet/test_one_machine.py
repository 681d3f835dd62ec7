"""From the built wheel to an import of a package built here, as a user without root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
PYTHON = "/usr/bin/python3"  # the user has no rights to the Python of this checkout


@pytest.fixture
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


def test_three_commands_as_a_user_without_root(user: tuple[str, Path], tmp_path: Path) -> None:
    name, home = user
    build = [find_uv_bin(), "build", "-q", "--no-config", "--wheel", "-o", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("fleetbuild-*.whl")
    shutil.copy(wheel, home)

    def run(*words: str) -> str:
        own = {"HOME": str(home), "USER": name, "XDG_DATA_HOME": ""}
        done = subprocess.run(
            ["setpriv", "--reuid", name, "--regid", name, "--init-groups", *words],
            check=False, cwd=home, env={**os.environ, **own}, capture_output=True, text=True,
            timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr + done.stdout

    run(PYTHON, "-m", "venv", "venv")
    run("venv/bin/pip", "install", "-q", "--no-compile", wheel.name)  # few modules are imported
    applied = run("venv/bin/fleetbuild", "apply", "--package", "xxhash==3.6.0", "--yes")
    said = run("venv/bin/fleetbuild", "run", "--", "python", "-c",
               "import xxhash; print(xxhash.__file__)")  # fmt: skip
    own = home / ".local/share/fleetbuild"
    assert said.startswith(f"{own}/releases/")
    assert applied.startswith("No inventory is named, and none is here: taking this machine")
    assert f"The release goes to {own}: you may not write to /opt/fleetbuild." in applied
