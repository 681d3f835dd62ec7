"""Find out whether a build ran out of memory, from its log, its exit code and kernel counters."""

import os
import re
import signal

# Messages of the compiler's driver, nvcc, make, a shell and a linker.
KILLED = re.compile(
    r"Killed signal terminated program|signal 9\b|\] Killed\b|^Killed$"
    r"|\bKilled\b.*\b(?:cc1|cc1plus|cicc|ptxas|ld|lto1)\b"
    r"|virtual memory exhausted|out of memory allocating|LLVM ERROR: out of memory",
    re.M,
)
_SAID = 1 << 22


def ran_out(code, log, begins, kills_before):
    """Return whether a failed command, whose log starts at this offset, ran out of memory."""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return True
    # Some build systems hide that a compiler was killed; the kernel counts it.
    return kills() > kills_before or bool(KILLED.search(_said(log, begins)))


def kills(proc="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """Return how many processes of this control group the kernel has killed for lack of memory."""
    found = (_count(path) for path in _counters(proc, root))
    return next((count for count in found if count is not None), 0)


def _count(path):
    """Return the count in this file; None if the file or the count is missing."""
    try:
        with open(path, encoding="ascii") as file:
            return int(dict(line.split() for line in file)["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def _counters(proc, root):
    """Return the possible files: cgroup version 2 or 1, outside or inside a container."""
    try:
        with open(proc, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for line in lines:
        controllers, own = line[1:] if len(line) == 3 else ("-", "")
        if controllers == "":
            folder, name = root, "memory.events"
        elif "memory" in controllers.split(","):
            folder, name = os.path.join(root, "memory"), "memory.oom_control"
        else:
            continue
        yield os.path.join(folder, own.lstrip("/"), name)
        yield os.path.join(folder, name)


def _said(log, begins):
    """Return the end of a log's text after an offset."""
    with open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begins, size - _SAID))
        return file.read().decode("utf-8", "replace")
