"""What a run needs of this machine: looked at before anything depends on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetbuild.store.index_config import index_settings, without_login

NEEDED_DISK = 2e9
_WITHIN, _INDEX_WITHIN = 30, 60  # seconds
# Beside the interpreter first: a virtual environment need not be on the PATH.
PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


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
    works, said = _tried([path, *command[1:]], _WITHIN)
    if not works:
        return Finding(what, missing, f"{path} does not work: {said}", fix)
    return Finding(what, "ok", f"{said} at {path}")


def _tried(
    command: list[str], within: int, given: str = "", env: Mapping[str, str] | None = None
) -> tuple[bool, str]:
    """Does it work? And its first words, or why not."""
    try:
        done = subprocess.run(
            command, input=given, env=env, capture_output=True, check=False, timeout=within,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"no answer within {within} s"
    except OSError as problem:
        return False, problem.strerror or str(problem)
    works = done.returncode == 0
    said = done.stdout or done.stderr if works else done.stderr or done.stdout
    return works, next(iter(without_login(said).strip().splitlines()), "no words")


def _state(state_dir: Path) -> Iterator[Finding]:
    wanted = state_dir.absolute()
    where = next(path for path in (wanted, *wanted.parents) if os.access(path, os.F_OK))
    if _writable(wanted, where):
        yield Finding("state directory", "ok", f"{state_dir} can be written")
    else:
        yield Finding(
            "state directory", "fail", f"{state_dir} cannot be written",
            "run in a directory of yours, or name another with --state-dir",
        )  # fmt: skip
    free = shutil.disk_usage(where).free
    if free >= NEEDED_DISK:
        yield Finding("disk", "ok", f"{free / 1e9:.1f} GB free")
    else:
        fix = "free some space: wheels and their sources are kept here"
        yield Finding("disk", "warn", f"only {free / 1e9:.1f} GB free", fix)


def _writable(wanted: Path, nearest: Path) -> bool:
    try:
        wanted.stat()
    except FileNotFoundError:
        pass  # it will be made
    except OSError:
        return False
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def _index() -> Finding:
    """Ask uv, which resolves in `plan`, for one small package, with the settings of this user."""
    uv = shutil.which("uv", path=PROGRAMS)
    if uv is None:
        return Finding("package index", "warn", "not tried, since uv is missing")
    settings = index_settings()
    command = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", *settings.arguments]
    env = {**os.environ, **settings.environment}
    works, said = _tried([*command, "-"], _INDEX_WITHIN, "packaging\n", env)
    if works:
        return Finding("package index", "ok", "answers")
    return Finding(
        "package index", "warn", f"does not answer: {said}",
        "set UV_INDEX_URL to one that does; without one, plan groups the nodes but cannot lock "
        "dependencies. An index that fleetbuild.yml names is not tried here, but by plan",
    )  # fmt: skip
