"""From a capture to facts, so that a node which sends a lot costs only itself.

In: a capture. Out: facts. A capture of usual size is read here; a larger one in a process of its
own, with limits on time, processor time and memory. That process runs `main`.
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
    """The facts that a capture holds. Raises NoAnswer where it cannot be read within limits."""
    size = sum(map(len, capture.values()))
    if size <= USUAL:
        return facts_of(capture)
    problem = NoAnswer(
        f"its answer of {size / 2**20:.0f} MB cannot be read within {CPU_SECONDS} s and"
        f" {MEMORY // 2**20} MB of memory",
        "look at what the sections in `fleetbuild facts --save DIR` hold",
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
    """Each section as a line with its name and size, and the text after it."""
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
    """Limit this process: processor time, memory, and no file that it writes."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    """Read a capture from standard input; write its facts to standard output, as JSON."""
    limit()
    sys.stdout.write(facts_of(_unpacked()).model_dump_json())
