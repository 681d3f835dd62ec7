"""Split the output of script.sh into its sections. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fleetbuild.models import Capture

SECTIONS = (
    "uname", "cpuinfo", "os-release", "libc", "libstdcxx", "meminfo", "nproc", "disk", "python",
    "nvidia-smi", "lspci", "toolchain", "release", "release-files",
    "loadavg",
    "memory-limit",  # where a cgroup has one
    "missing-interpreters",  # where an inventory sets interpreters for Ansible's modules
    "allowed-signers",  # only on nodes that accept only signed releases
    "sve", "device-tree", "kfd", "mig",  # only on nodes with such hardware
    "isolation",  # where the node has a program to try it with
    "previous",  # only on nodes that had a release before
)  # fmt: skip
# The last line of a section that script.sh gave up.
_NO_ANSWER = re.compile(r"fleetbuild: no answer within (\d{1,6}) s\s*\Z", re.ASCII)
_MAX_MARKS = 8 * len(SECTIONS)  # script.sh prints two a section
_LONGEST_MARK = 64  # characters after the nonce


def split(output: str, nonce: str, sections: Sequence[str] = SECTIONS) -> Capture:
    """Return these sections in the output of a script such as script.sh, reading it once.

    Text outside of sections (a greeting, output of a profile) is dropped, and so is a section whose
    end mark is missing.
    """
    text = f"\n{output}"
    found: dict[str, str] = {}
    name, start = "", 0  # of the open section
    for at, after, words in _marks(text, nonce):
        if words[0] == "begin":
            name, start = " ".join(words[1:]), after + 1
            continue
        ends = words[:2] == ["end", name] and len(words) == 3 and words[2].isdecimal()
        if ends and name in sections and start <= at and (start < at or words[2] == "0"):
            found[name] = text[start:at]
        name = ""
    return found


def unanswered(capture: Capture) -> dict[str, int]:
    """Return the sections that were given up before they ended, and their limit in seconds."""
    ends = ((name, _NO_ANSWER.search(text[-100:])) for name, text in capture.items())
    return {name: int(end[1]) for name, end in ends if end}


def _marks(text: str, nonce: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield each line that starts with the nonce: start, end, and its words after the nonce."""
    mark, at = f"\n{nonce} ", -1
    for _ in range(_MAX_MARKS):
        at = text.find(mark, at + 1)
        if at < 0:
            return
        first = at + len(mark)
        line = text[first : first + _LONGEST_MARK].partition("\n")[0]
        yield at, first + len(line), line.split(" ")
