"""The first program in a build's container: run the steps there. Standard library only.

In: one line of JSON on standard input. Out: one on standard output; see Build.work().
"""

import json
import os
import threading

from .container import CONTAINER
from .wheel_build import LOG, Build

# What an image may need so that its compilers are found and run, as manylinux's do.
KEPT = ("PATH", "LD_LIBRARY_PATH")


def main():
    """Run the steps of the build that standard input describes."""
    request = json.loads(first_line(0).decode("ascii"))
    threading.Thread(target=end_with_the_module, daemon=True).start()
    params = request["params"]
    for name in KEPT:
        if os.environ.get(name):
            params["environment"].setdefault(name, os.environ[name])
    with open(LOG, "r+b") as log:
        log.seek(0, os.SEEK_END)
        Build(params).work(1, log, CONTAINER, request["deadline"])


def first_line(descriptor):
    """Return the first line of a pipe."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(descriptor, 1 << 16)
        if not part:
            os._exit(1)
        line += part
    return line


def end_with_the_module():
    """End the container when the module that started it has ended, even by SIGKILL."""
    while os.read(0, 1 << 10):
        pass
    os._exit(1)  # the first process of the container takes all others with it
