"""`ansible-test sanity`, as the community's collections are held to."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
# Those that install nothing before they run.
OFFLINE = [
    "action-plugin-docs", "compile", "empty-init", "ignores", "line-endings", "no-assert",
    "no-get-exception", "no-illegal-filenames", "no-smart-quotes", "replace-urlopen", "shebang",
    "symlinks", "use-argspec-type-path",
]  # fmt: skip
# Those that install their own versions of a few packages.
WITH_PACKAGES = [
    "ansible-doc", "import", "pep8", "runtime-metadata", "validate-modules", "yamllint",
]  # fmt: skip
# ansible-test loads pip from a server of its own. The one that comes with Python does.
OWN_PIP = "import ensurepip\n\nensurepip.bootstrap()\n"


@pytest.fixture
def place(installed: Path, tmp_path: Path) -> Path:
    """The installed collection. ansible-test marks its folder, so it gets a copy."""
    collections = tmp_path / "ansible_collections" / "fleetbuild" / "core"
    shutil.copytree(installed, collections)
    return collections


def sanity(place: Path, home: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    chosen = [word for test in tests for word in ("--test", test)]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return subprocess.run(
        [str(PROGRAMS / "ansible-test"), "sanity", "--python", python, *chosen],
        cwd=place,
        env={"HOME": str(home), "PATH": f"{PROGRAMS}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_sanity_tests_without_network_pass(place: Path, home: Path) -> None:
    done = sanity(place, home, *OFFLINE)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.findall(r'Running sanity test "(.*)"', done.stdout) == OFFLINE


def test_a_module_that_sanity_rejects_fails(place: Path, home: Path) -> None:
    with (place / "plugins/modules/build.py").open("a") as module:
        module.write("x = 'a\u2019b'\n")
    done = sanity(place, home, "no-smart-quotes")
    assert (done.returncode, "plugins/modules/build.py" in done.stdout) == (1, True), done.stdout


@pytest.mark.network
@pytest.mark.parametrize(
    "names",
    # pylint takes three times as long as the others, and ruff finds most of what it does.
    [pytest.param(WITH_PACKAGES, id="quick"), pytest.param(["pylint"], marks=pytest.mark.long)],
)
def test_sanity_tests_that_need_packages_pass(place: Path, names: list[str]) -> None:
    """Its environments are kept for all checkouts: to install them takes twice as long as to use
    them. So only the first run asks a package index."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetbuild-sanity"
    (home / ".config" / "pip").mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (home / ".config" / "pip" / "pip.conf").write_text(_pip_settings())
        done = sanity(place, home, *names)
        if missing := re.search(r"saved to: (\S+)", done.stdout):
            Path(missing[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(missing[1]).write_text(OWN_PIP)
            done = sanity(place, home, *names)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.findall(r'Running sanity test "(.*)"', done.stdout) == names


def _pip_settings() -> str:
    """The user's index, which ansible-test does not see: it passes on few variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    found = re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.M)
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in dict(found).items())])
