"""Did a build end for lack of memory? By its words, by its end, by what the kernel counts."""

import os
import re
import signal

# The compiler's driver, nvcc, make, a shell and a linker each have their words for it.
KILLED = re.compile(
    r"Killed signal terminated program|signal 9\b|\] Killed\b|^Killed$"
    r"|\bKilled\b.*\b(?:cc1|cc1plus|cicc|ptxas|ld|lto1)\b"
    r"|virtual memory exhausted|out of memory allocating|LLVM ERROR: out of memory",
    re.M,
)
_SAID = 1 << 22


def ran_out(code, log, begins, kills_before):
    """Has a command that failed, and wrote from there into its log, run out of memory?"""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return True
    # Some build systems hide the compiler's end; the kernel does not.
    return kills() > kills_before or bool(KILLED.search(_said(log, begins)))


def kills(proc="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """How many processes of this control group the kernel has killed for their memory so far."""
    found = (_count(path) for path in _counters(proc, root))
    return next((count for count in found if count is not None), 0)


def _count(path):
    """The count in this file; None where there is no such file, or it has none."""
    try:
        with open(path, encoding="ascii") as file:
            return int(dict(line.split() for line in file)["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def _counters(proc, root):
    """Where it may stand: version 2 or 1, seen from outside of a container or from inside."""
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
    """The end of what a log says from there on."""
    with open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begins, size - _SAID))
        return file.read().decode("utf-8", "replace")
