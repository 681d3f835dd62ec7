"""Read the facts of a capture, so that a node with huge output does not delay other nodes.

In: a capture. Out: facts. A capture of usual size is read in this process; a larger one in a
separate process (`main`) with limits on time, processor time and memory.
"""

from __future__ import annotations

import os
import resource
import sys
import threading

from fleetbuild.models import Capture, Facts
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.transport.base import Deadline, NoAnswer
from fleetbuild.probe.transport.process import Process

USUAL = 2**20  # characters: 500 processors; at most 0.05 s of work
SECONDS = 20
CPU_SECONDS = 10
MEMORY = 512 * 2**20
_TURNS = threading.BoundedSemaphore(max(2, os.cpu_count() or 1))


def read_facts(capture: Capture) -> Facts:
    """Return the facts of a capture. Raises NoAnswer if it cannot be read within limits."""
    size = sum(map(len, capture.values()))
    if size <= USUAL:
        return facts_of(capture)
    problem = NoAnswer(
        f"its answer of {size / 2**20:.0f} MB cannot be read within {CPU_SECONDS} s and"
        f" {MEMORY // 2**20} MB of memory",
        "save the sections with `fleetbuild facts --save DIR` and check their content",
    )
    deadline = Deadline(SECONDS)
    if not _TURNS.acquire(timeout=SECONDS):
        raise problem
    try:
        answer = Process(
            [sys.executable, "-P", "-c", "from fleetbuild.probe.parsing.apart import main; main()"],
            {"PYTHONPATH": os.pathsep.join(sys.path)},
        ).run(_packed(capture), deadline)
    except TimeoutError:
        raise problem from None
    finally:
        _TURNS.release()
    if answer.code != 0:
        raise problem
    return Facts.model_validate_json(answer.out)


def _packed(capture: Capture) -> bytes:
    """Encode a capture: for each section a line with name and size, then its text."""
    texts = ((name, text.encode("utf-8", "surrogatepass")) for name, text in capture.items())
    return b"".join(b"%s %d\n%s" % (name.encode(), len(text), text) for name, text in texts)


def _unpacked() -> Capture:
    capture = {}
    while head := sys.stdin.buffer.readline():
        name, size = head.split()
        text = sys.stdin.buffer.read(int(size))
        capture[name.decode()] = text.decode("utf-8", "surrogatepass")
    return capture


def limit() -> None:
    """Limit processor time and memory of this process, and forbid writing files."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    """Read a capture from standard input; write its facts to standard output, as JSON."""
    limit()
    sys.stdout.write(facts_of(_unpacked()).model_dump_json())
