"""Run an untrusted program in the sandbox in which nodes build: `builder/isolation.py`.

In: a command and the files that it reads. Out: its output, or `SandboxError`. The program has no
network, no home and no environment of this process, sees no other process and none of the kernel's
keys, writes only to memory, and is never root, also where this process is.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from fleetbuild.files import ansible_dir

PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
PYTHON_TAG = f"cp3{sys.version_info.minor}{'t' if 't' in sys.abiflags else ''}"
_START = Path(__file__).with_name("sandbox_start.py")
_MEMORY = 2048  # MiB of its own folder
_SECONDS = 150
_MAX_ANSWER = 4 << 20
# Programs and libraries of the system, where they are.
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
_ENVIRONMENT = {
    "PATH": "/env/bin:/usr/bin:/bin", "HOME": "/scratch", "TMPDIR": "/scratch", "LANG": "C.UTF-8",
    "PYTHONPATH": "/env", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
# Settings that keep users from making namespaces, each with the value that does.
_FORBIDDING = {
    "user.max_user_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}


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

    `readable` names the files and folders that it sees, by their path inside. They lie in a private
    folder, and are made readable for the user that it runs as.
    """
    seconds = seconds or _SECONDS
    outside = () if Path(sys.base_prefix).is_relative_to("/usr") else (sys.base_prefix,)
    if os.geteuid() == 0:  # the command is not
        for path in readable.values():
            _let_read(path)
    asked = {
        "modules": str(ansible_dir() / "plugins/module_utils"),
        "command": list(command),
        "environment": _ENVIRONMENT,
        "system": [*_SYSTEM, *outside],
        "readable": {inside: str(path) for inside, path in readable.items()},
        "memory": {"/scratch": _MEMORY},
    }
    # Files, and no pipes: the program bounds what it writes by RLIMIT_FSIZE.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            code = subprocess.run(
                [str(PYTHON), "-I", "-S", "-B", str(_START), json.dumps(asked)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={"PATH": "/usr/bin:/bin"},
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


@cache
def why_unavailable() -> str | None:
    """Return why no program can be confined on this machine; None if it can."""
    try:
        run_confined([str(PYTHON), "-I", "-S", "-c", ""], {})
    except SandboxError as problem:
        return f"this machine does not allow one: {', '.join([str(problem), *_forbidding()])}"
    return None


def _forbidding() -> Iterator[str]:
    """Yield the settings of this machine that keep users, but not root, from making namespaces."""
    for name, value in _FORBIDDING.items():
        file = Path("/proc/sys", name.replace(".", "/"))
        if os.geteuid() != 0 and file.exists() and file.read_text().strip() == value:
            yield f"{name} is {value}"


def _let_read(top: Path) -> None:
    """Let others read what this process may have made with a umask that does not."""
    for path in (top, *top.rglob("*")):
        mode = path.lstat().st_mode
        wanted = mode | (0o055 if mode & stat.S_IXUSR else 0o044)
        if wanted != mode and not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(wanted))
