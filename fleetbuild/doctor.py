"""Check this machine for everything that a run needs: programs, state directory, disk, index.

In: the path of the state directory. Out: one `Finding` per check.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetbuild.ansible import untried_core
from fleetbuild.plan.resolve.uv import try_index
from fleetbuild.programs import uv_program
from fleetbuild.store.address_secrets import without_login
from fleetbuild.store.index_config import index_settings

NEEDED_DISK = 2e9
_TIMEOUT = 60  # seconds; a busy machine takes many to start Ansible or uv
# The interpreter's folder comes first, since a virtual environment need not be on PATH.
PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    what: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


def examine(state_dir: Path) -> list[Finding]:
    """Run all checks."""
    return [
        Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}"),
        _check_program("ssh", ["ssh", "-V"], "install the OpenSSH client (Debian: openssh-client)"),
        _check_ansible(),
        _check_program("uv", [uv_program(), "--version"], "install fleetbuild again"),
        _check_program(
            "sshpass",
            ["sshpass", "-V"],
            "install sshpass if nodes are reached by password; keys need nothing",
            needed=False,
        ),
        *_check_state_dir(state_dir),
        _check_index(),
    ]


def _check_ansible() -> Finding:
    finding = _check_program(
        "ansible",
        ["ansible-playbook", "--version"],
        "install fleetbuild with its dependencies, which include ansible-core",
    )
    core = re.search(r"\[core (\S+)\]", finding.found)
    if finding.state == "ok" and core and (problem := untried_core(core[1])):
        return replace(finding, state="warn", fix=problem)
    return finding


def _check_program(what: str, command: list[str], fix: str, *, needed: bool = True) -> Finding:
    missing: Literal["fail", "warn"] = "fail" if needed else "warn"
    path = shutil.which(command[0], path=PROGRAMS)
    if path is None:
        return Finding(what, missing, "not found", fix)
    works, output = _try_command([path, *command[1:]], _TIMEOUT)
    if not works:
        return Finding(what, missing, f"{path}: {output}", fix)
    return Finding(what, "ok", f"{output} at {path}")


def _try_command(command: list[str], timeout: int) -> tuple[bool, str]:
    """Run a command; return whether it worked, and the first line of its output or the error."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"no answer within {timeout} s; this machine may be busy"
    except OSError as problem:
        return False, problem.strerror or str(problem)
    works = done.returncode == 0
    output = done.stdout or done.stderr if works else done.stderr or done.stdout
    return works, next(iter(without_login(output).strip().splitlines()), "no output")


def _check_state_dir(state_dir: Path) -> Iterator[Finding]:
    wanted = state_dir.absolute()
    where = next(path for path in (wanted, *wanted.parents) if os.access(path, os.F_OK))
    if _writable(wanted, where):
        yield Finding("state directory", "ok", f"{state_dir} can be written")
    else:
        yield Finding(
            "state directory", "fail", f"{state_dir} cannot be written",
            "run in a directory that you own, or name another with --state-dir",
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
        pass  # the run creates it
    except OSError:
        return False
    try:  # for root, every question about permissions is answered with yes
        with tempfile.TemporaryFile(dir=nearest):
            return True
    except OSError:
        return False


def _check_index() -> Finding:
    """Ask uv for one small package, with this user's settings, as `plan` does."""
    problem = try_index(index_settings(), _TIMEOUT)
    if not problem:
        return Finding("package index", "ok", "answers")
    output = without_login(problem).splitlines()[0]
    return Finding(
        "package index", "warn", f"does not answer: {output}",
        "set UV_INDEX_URL to an index that answers; without one, plan groups the nodes but cannot "
        "lock dependencies. An index named in fleetbuild.yml is only tried by plan",
    )  # fmt: skip
