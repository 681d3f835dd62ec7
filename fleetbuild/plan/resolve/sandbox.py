"""Run an untrusted program inside bubblewrap.

In: a command and the files that it reads. Out: its output, or `SandboxError`. The program has no
network, no home and no environment of this process, sees no other process and none of the kernel's
keys, and writes only to memory.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fleetbuild.files import ansible_dir

PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
PYTHON_TAG = f"cp3{sys.version_info.minor}{'t' if 't' in sys.abiflags else ''}"
_NOBODY = "65534"
_MEMORY = str(2 << 30)  # of its own folder
_SECONDS = 150
_MAX_ANSWER = 4 << 20
# Programs and libraries of the system, where they are.
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")


def glibc_here() -> str:
    """Return the version of this machine's glibc; "" if it has another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
    except (AttributeError, ValueError):
        return ""


class SandboxError(Exception):
    """The sandbox does not work here, or its program failed; the text says why."""


def run_confined(
    command: Sequence[str], readable: Mapping[str, Path], *, seconds: float | None = None
) -> str:
    """Run a command in the sandbox and return its standard output.

    `readable` names the files and folders that it sees, by their path inside.
    """
    if problem := why_unavailable():
        raise SandboxError(problem)
    return _run([*_bubblewrap(readable), *command], seconds)


@cache
def why_unavailable() -> str | None:
    """Return why no program can be confined on this machine; None if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed on this machine"
    try:
        _run([*_bubblewrap({}), str(PYTHON), "-I", "-S", "-c", ""])
    except SandboxError as problem:
        return f"bubblewrap does not work on this machine: {problem}"
    return None


def _bubblewrap(readable: Mapping[str, Path]) -> list[str]:
    words = [
        "bwrap", "--unshare-all", "--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY,
        "--die-with-parent", "--new-session", "--clearenv",
        "--setenv", "PATH", "/env/bin:/usr/bin:/bin", "--setenv", "HOME", "/scratch",
        "--setenv", "LANG", "C.UTF-8", "--setenv", "PYTHONPATH", "/env",
        "--setenv", "PYTHONDONTWRITEBYTECODE", "1",
    ]  # fmt: skip
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            words += ["--ro-bind", str(path), str(path)]
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        words += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", _MEMORY, "--tmpfs", "/scratch"]
    if Path("/proc/keys").exists():  # it lists the names of tickets
        words += ["--ro-bind", "/dev/null", "/proc/keys"]
    words += ["--symlink", "scratch", "/tmp"]  # noqa: S108  (inside)
    for inside, path in readable.items():
        words += ["--ro-bind", str(path), inside]
    # Started by root, the program is root for files of the kernel, such as those of sysctl.
    return [*words, "--remount-ro", "/proc", "--chdir", "/scratch"]


@cache
def _refused_calls() -> bytes | None:
    """Return the filter of system calls that builds on nodes have, too."""
    file = ansible_dir() / "plugins/module_utils/builder/refused_calls.py"
    return runpy.run_path(str(file))["program"](platform.machine())  # type: ignore[no-any-return]


def _run(command: Sequence[str], seconds: float | None = None) -> str:
    seconds = seconds or _SECONDS
    # Files, and no pipes: the program bounds what it writes by RLIMIT_FSIZE.
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryFile() as calls,
    ):
        calls.write(_refused_calls() or b"")
        calls.seek(0)
        words = ["--seccomp", str(calls.fileno())] if _refused_calls() else []
        try:
            code = subprocess.run(
                [command[0], *words, *command[1:]],
                pass_fds=[calls.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise SandboxError(f"it did not end within {seconds:.0f} s") from None
        except OSError as problem:
            raise SandboxError(f"{problem.strerror}") from None
        if code != 0:
            size = errors.seek(0, 2)
            errors.seek(max(0, size - 2000))
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise SandboxError(said[-1] if said else f"it ended with code {code}")
        out.seek(0)
        return out.read(_MAX_ANSWER).decode("utf-8", "replace")
