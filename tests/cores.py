"""Tests with the oldest and the newest ansible-core on every Python here: python -m tests.cores.

In: the Pythons of this machine, and the range of ansible-core in pyproject.toml. Each pair gets a
virtual environment in .cache/cores and runs the tests that start or load Ansible. The oldest core
on the first Python and the newest one on the last run the tests of roles too, the last also others
that depend on Python; both run Molecule and a core of the fleet tests. With the argument `loading`
there are only the tests that start or load Ansible.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from uv import find_uv_bin

from tests.__main__ import main

CHECKOUT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FIRST_CORE = {"3.14": "2.20"}  # where that is newer than the oldest that fleetbuild allows
_FOLDER = CHECKOUT / ".cache" / "cores"
_REPLIES = ("tests/unit/collection/test_private_names.py", "tests/hostile/test_replies.py")
_EACH = ("tests/unit/ansible", *_REPLIES)
_FIRST = ("tests/unit/roles", "tests/unit/probe/inventory")
_LAST = ("tests/unit/roles", "tests/unit/probe", "tests/unit/plan")
_NODES = (
    "tests/molecule",
    *(
        f"tests/fleet/test_{name}.py"
        for name in ("guarded_node", "lying_modules", "lying_node", "rollout")
    ),
)


def python(version: str) -> str | None:
    """Return the path of this Python, if this machine has it."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    others = sorted(versions.glob(f"{version}.*/bin/python{version}"))
    for path in (f"/usr/bin/python{version}", *map(str, others), shutil.which(f"python{version}")):
        # One of pyenv's stand-ins fails where that version is not chosen.
        if path and Path(path).exists() and _runs(path):
            return path
    return None


def _runs(path: str) -> bool:
    command = [path, "-c", "import venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def oldest(version: str) -> str:
    """Return the oldest ansible-core for this Python, such as "2.18"."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    (core,) = (
        requirement
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name == "ansible-core"
    )
    (lowest,) = (each.version for each in core.specifier if each.operator == ">=")
    return FIRST_CORE.get(version, lowest)


def environment(name: str, path: str, core: str) -> str:
    """Return the Python of a virtual environment with this ansible-core."""
    uv, folder = find_uv_bin(), str(_FOLDER / name)
    program = f"{folder}/bin/python"
    if not Path(program).exists():
        subprocess.run([uv, "venv", "--quiet", "--seed", "--python", path, folder], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", program, "--editable", "."]
    packages = ["--group", "unit", "--upgrade-package", "ansible-core", core, "molecule>=24"]
    subprocess.run([*install, *packages], check=True, cwd=CHECKOUT)
    return program


def commands(*, only_loading: bool) -> dict[str, list[str]]:
    """Make the environments; return the command of each part of the tests."""
    pairs: dict[str, str] = {}
    for version in PYTHONS:
        path = python(version)
        if not path:
            print(f"not run: Python {version} is not on this machine")
            continue
        old, new = f"{version}-oldest", f"{version}-newest"
        pairs[old] = environment(old, path, f"ansible-core=={oldest(version)}.*")
        pairs[new] = environment(new, path, "ansible-core")
    own = f"{sys.version_info.major}.{sys.version_info.minor}-newest"
    pairs.pop(own, None)  # make test runs it
    if only_loading:
        return {name: _pytest(program, _EACH) for name, program in pairs.items()}
    first, *_, last = pairs
    more = {first: _FIRST, last: _LAST}
    unit = {name: _pytest(pairs[name], (*_EACH, *more.get(name, ()))) for name in pairs}
    return {f"{name}-nodes": _pytest(pairs[name], _NODES) for name in (first, last)} | unit


def _pytest(program: str, tests: Sequence[str]) -> list[str]:
    folder = Path(program).parents[1]
    path = f"PATH={folder}/bin:{os.environ['PATH']}"
    labs = f"FLEETBUILD_LAB_DIR={folder}/lab"  # Molecule's labs are named after the scenarios
    return ["env", path, labs, program, "-m", "pytest", *tests]


if __name__ == "__main__":
    only = sys.argv[1:] == ["loading"]
    sys.exit(main(commands(only_loading=only), CHECKOUT / ".pytest_cache" / "cores"))
