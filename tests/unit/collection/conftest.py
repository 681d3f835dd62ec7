"""The collection fleetbuild.core as a user has it: built, and installed alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories.role_modules import CHECKOUT

Run = Callable[..., str]
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collection")


@pytest.fixture(scope="session")
def ansible(home: Path) -> Run:
    """Run a program of Ansible in an environment that holds this home and nothing more."""

    def run(program: str, *arguments: str, cwd: Path = home, code: int | None = 0) -> str:
        done = subprocess.run(
            [str(PROGRAMS / program), *arguments],
            cwd=cwd,
            env={
                "HOME": str(home),
                "PATH": f"{PROGRAMS}:/usr/bin:/bin",
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_COLLECTIONS_PATH": str(home / "collections"),
                "ANSIBLE_NOCOLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,  # apart: ansible-core 2.22 warns of a collection of its own
            text=True,
            check=False,
        )
        assert done.returncode == code or code is None, (
            f"{program} {arguments}:\n{done.stdout[-8000:]}{done.stderr[-4000:]}"
        )
        return done.stdout

    return run


@pytest.fixture(scope="session")
def archive(ansible: Run, home: Path) -> Path:
    build = ("collection", "build", "--output-path", str(home / "dist"))
    ansible("ansible-galaxy", *build, cwd=CHECKOUT)
    (made,) = (home / "dist").iterdir()
    return made


@pytest.fixture(scope="session")
def installed(ansible: Run, home: Path, archive: Path) -> Path:
    place = home / "collections"
    ansible("ansible-galaxy", "collection", "install", "--offline", "-p", str(place), str(archive))
    return place / "ansible_collections" / "fleetbuild" / "core"
