"""A build's folder: the status, progress and errors of a build. Standard library only."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import signal
import time

from .source_tree import sha256
from .wheel_inputs import MACHINE

STEPS = re.compile(rb"^[ \t]*\[\s*(\d+)/(\d+)\]", re.M)
COMPILED = re.compile(rb"^(?!# )[^\n]*(?:\s-c\s|Building \w+ object )", re.M)
CONTEXT = re.compile(r"\s*(?:\d+ )?(?:\|.*)?$")  # the code that a compiler quotes; an empty line
COMPILER_ERROR = re.compile(
    r"[:)] (?:fatal )?error(?: [A-Z]*\d+)?:|\bundefined reference to\b|^CMake Error\b"
    r"|^error\[E\d+\]:|^(?:nvcc|ptxas) (?:fatal|error)\b|\bcannot find -l|memory exhausted:"
    r"|^this version of Cargo is older|^lock file version `\d+` was|\brequires rustc \d"
    r"|^The package requires the Cargo feature|build stopped: interrupted by user|^User interrupt$"
    r"|^g?make\b[^ ]*: \*\*\* .* Interrupt$"
)
CMAKE_ERROR = re.compile(r"^CMake Error at .*:$")  # the lines below it, indented, say the reason
ERROR = re.compile(r"\berror\b|No such file|not found|Error:", re.I)
PIPS_OWN = re.compile(
    r"subprocess-exited-with-error|error: Failed|ERROR: Failed|This error originates"
    r"|Building wheel for|did not run successfully|metadata-generation-failed"
    r"|Encountered error while|This is an issue with the package|See above for|Failed to build"
    r"|^Running command (?:Getting requirements|Preparing metadata)|^(?:full command|cwd): "
    r"|^Processing \./src$|^Building wheels for collected|: (?:started|finished with status '\w+')$"
    r"|^\s*[×╰│─>]*\s*(?:exit code|\[end of output\]|note:|hint:)"
)
ANOTHER_ATTEMPT = "Out of memory. Once more"
MOST_ERRORS = 5
LONGEST = 300  # characters of an error
PATIENCE = 10  # seconds for killed processes to be gone


class Folder:
    """The folder of a build; every run with the same key uses the same one."""

    def __init__(self, path):
        self.dir = os.path.abspath(path)
        self.log = self.at("build.log")

    def at(self, *names):
        """Return a path in the build's folder."""
        return os.path.join(self.dir, *names)

    def prepare(self):
        """Create the folder; delete the status of a failed earlier build."""
        os.makedirs(self.at("in"), exist_ok=True)
        if self.status()["state"] == "failed":
            os.unlink(self.at("status.json"))

    def status(self):
        """Return {state: absent|running|failed|done, …}, read from the files and the lock."""
        running = self.is_locked()
        status = self.read_status()
        if status.get("state") == "done" and not self.wheel_is_whole(status):
            status = {}
        if status.get("state") == "running" and not running and not self.is_locked():
            status = self.read_status()
            if status.get("state") == "running":
                status = {
                    "state": "failed",
                    "reason": "The build was killed, by a restart or for lack of memory.",
                    "fix": ["run-with-cache"],
                    "kind": MACHINE,
                }
        state = "running" if running else status.get("state", "absent")
        return dict(
            {
                "reason": "",
                "fix": [],
                "kind": "",
                "file": "",
                "sha256": "",
                "seconds": 0,
                "errors": [],
                "isolation": "",
                "container": "",
            },
            **dict(status, state=state, progress=self.progress(status)),
        )

    def is_locked(self):
        """Return whether a build runs in this folder."""
        try:
            with open(self.at("lock"), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def end(self):
        """End the build that runs in this folder, with all of its processes."""
        builder = self.read_status().get("pid")
        if not self.is_locked() or not is_open(builder, self.at("lock")):
            return
        for pid in with_descendants(builder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while self.is_locked() and time.monotonic() < deadline:
            time.sleep(0.05)

    def read_status(self):
        """Return the content of status.json; empty if it cannot be read."""
        try:
            with open(self.at("status.json"), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_status(self, **status):
        """Write status.json in one atomic step."""
        with open(self.at("status.json.new"), "w", encoding="utf-8") as file:
            json.dump(status, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.at("status.json.new"), self.at("status.json"))
        return status

    def wheel_is_whole(self, status):
        """Return whether the finished wheel is still the same."""
        path = self.at("out", status.get("file", ""))
        return os.path.isfile(path) and sha256(path) == status.get("sha256")

    def progress(self, status):
        """Return the compiler's progress, read from the log."""
        data = tail(self.log, 1 << 22)
        steps = STEPS.findall(data)
        lines = data[-8000:].decode("utf-8", "replace").split("\n")
        told = (line.strip() for line in reversed(lines) if not CONTEXT.match(line))
        seconds = status.get("seconds") or time.time() - status.get("started", time.time())
        return {
            "done": int(steps[-1][0]) if steps else None,
            "total": int(steps[-1][1]) if steps else None,
            "steps": len(COMPILED.findall(data)),
            "seconds": round(seconds, 1),
            "last_line": next(told, "")[:2000],
        }


def is_open(pid, path):
    """Return whether this process has this file open: a number in a file may be out of date."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.path.samefile(os.path.join(folder, number), path):
                    return True
    return False


def with_descendants(pid):
    """Return this process and all below it that live, parents first."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def tail(path, size):
    """Return the end of a file."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read()
    except OSError:
        return b""


def errors_in(log):
    """Return the few lines that show the error: a compiler's first errors, else the last lines."""
    first = compiler_errors(log)
    if first:
        return first
    lines = [line.strip() for line in tail(log, 1 << 18).decode("utf-8", "replace").split("\n")]
    # `# $` is a command of the build. CMake's status lines begin with `--`; some name -Werror.
    lines = [line for line in lines if line and not PIPS_OWN.search(line) and line[:3] != "# $"]
    errors = [line for line in lines if ERROR.search(line) and not line.startswith("-- ")]
    return [line[:LONGEST] for line in (errors or lines)[-MOST_ERRORS:]]


def compiler_errors(log):
    """Return a compiler's first errors in the last attempt; later errors often follow from them."""
    found, cmake, depth = [], "", 0
    try:
        with open(log, encoding="utf-8", errors="replace") as lines:
            for line in itertools.chain(iter(lambda: lines.readline(1 << 16), ""), [""]):
                if line.startswith("# " + ANOTHER_ATTEMPT):
                    found, cmake = [], ""
                text, indent = line.strip(), len(line) - len(line.lstrip())
                if cmake and text and indent > depth:
                    cmake = (cmake + " " + text)[:LONGEST]
                    continue
                starts = CMAKE_ERROR.search(text)
                errors = [cmake] if starts else [cmake, text[:LONGEST]]
                if len(found) < MOST_ERRORS:
                    found += [each for each in errors if is_new_error(each, found)]
                cmake, depth = (text[:LONGEST], indent) if starts else ("", 0)
    except OSError:
        return []
    return found[:MOST_ERRORS]


def is_new_error(text, found):
    return text not in found and COMPILER_ERROR.search(text)
