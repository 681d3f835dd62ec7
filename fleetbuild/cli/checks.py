"""The checks of `fleetbuild doctor`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from fleetbuild.report.doctor import Finding
from fleetbuild.report.text import size

NEEDED_DISK = 2e9
# Beside the interpreter first: a virtual environment need not be on the PATH.
PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def examine(state_dir: Path) -> list[Finding]:
    """Look at everything that a run will need."""
    return [
        Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}"),
        _program("ssh", ["ssh", "-V"], "install the OpenSSH client (Debian: openssh-client)"),
        _program(
            "ansible",
            ["ansible-playbook", "--version"],
            "install fleetbuild with its dependencies, which include ansible-core",
        ),
        _program("uv", ["uv", "--version"], "install uv, which is a dependency of fleetbuild"),
        _program(
            "sshpass",
            ["sshpass", "-V"],
            "install sshpass if nodes are reached by password; keys need nothing",
            needed=False,
        ),
        *_state(state_dir),
        _index(),
    ]


def _program(what: str, command: list[str], fix: str, *, needed: bool = True) -> Finding:
    missing: Literal["fail", "warn"] = "fail" if needed else "warn"
    path = shutil.which(command[0], path=PROGRAMS)
    if path is None:
        return Finding(what, missing, "not found", fix)
    done = subprocess.run(
        [path, *command[1:]], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        return Finding(what, missing, f"{path} does not work: {_first_line(done.stderr)}", fix)
    return Finding(what, "ok", f"{_first_line(done.stdout or done.stderr)} at {path}")


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "no words")


def _state(state_dir: Path) -> Iterator[Finding]:
    where = state_dir.absolute()
    while not where.exists():
        where = where.parent
    if where.is_dir() and os.access(where, os.W_OK):
        yield Finding("state directory", "ok", f"{state_dir} can be written")
    else:
        yield Finding(
            "state directory", "fail", f"{state_dir} cannot be written",
            "run in a directory of yours, or name another with --state-dir",
        )  # fmt: skip
    free = shutil.disk_usage(where).free
    if free >= NEEDED_DISK:
        yield Finding("disk", "ok", f"{size(free)} free")
    else:
        fix = "free some space: wheels and their sources are kept here"
        yield Finding("disk", "warn", f"only {size(free)} free", fix)


def _index() -> Finding:
    """Ask uv, which resolves in `plan`, for one small package, so that its settings are tried."""
    uv = shutil.which("uv", path=PROGRAMS)
    if uv is None:
        return Finding("package index", "warn", "not tried, since uv is missing")
    done = subprocess.run(
        [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "-"],
        input="packaging\n", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode == 0:
        return Finding("package index", "ok", "answers")
    return Finding(
        "package index", "warn", f"does not answer: {_first_line(done.stderr)}",
        "set UV_INDEX_URL to one that does, or index: in fleetbuild.yml; without one, "
        "plan groups the nodes but cannot lock dependencies",
    )  # fmt: skip
