"""How long `fleetbuild check` takes for a usual stack: with downloads, without them, and again.

`python -m benchmarks.check [--state DIR] [FILE.so]...` checks the stack of check.txt for `avx2`,
and reads shared objects by themselves. It prints tables for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.baselines import say, table

STACK = Path(__file__).with_suffix(".txt")
README = ["fleetbuild", "check", "numpy", "polars", "faiss-cpu==1.14.2"]
README += ["--for", "IvyBridge", "--for", "Haswell", "--state-dir"]
READ = """
import mmap, sys
from fleetbuild.audit.wheel import audit_elf
with open(sys.argv[1], "rb") as file:
    audit_elf("", mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check")
    parser.add_argument("--state", type=Path, help="a folder that may have the wheels already")
    parser.add_argument("files", nargs="*", type=Path, help="shared objects")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetbuild-bench-") as place:
        state, caches = given.state or Path(place), Path(place, "caches")
        os.environ.setdefault("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))
        os.environ["XDG_CACHE_HOME"] = str(caches)
        command = ["fleetbuild", "check", "-r", STACK, "--for", "avx2", "--state-dir", state]
        rows = [["with downloads", *measure(command, passing=(0, 7))]]
        shutil.rmtree(caches / "fleetbuild")
        rows += [["reading alone", *measure(command, passing=(0, 7))]]
        rows += [["again", *measure(command, passing=(0, 7))]]
    for name in ("README's first command", "the same with --instead"):
        with tempfile.TemporaryDirectory(prefix="fleetbuild-bench-") as place:
            more = ["--instead"] if "instead" in name else []
            row = measure([*README, place, *more], passing=(0, 7))
            size = sum(path.stat().st_size for path in Path(place).rglob("*.whl"))
            rows += [[f"{name}, {size / 1e6:.0f} MB fetched", *row]]
    say(table(["run", "wall clock, s", "CPU, s", "load before"], [row[:4] for row in rows]))
    files = [
        [
            path.name,
            f"{path.stat().st_size / 1e6:.0f}",
            *measure([sys.executable, "-c", READ, path]),
        ]
        for path in given.files
    ]
    if files:
        header = [
            "shared object",
            "MB",
            "wall clock, s",
            "CPU, s",
            "load before",
            "peak memory, MB",
        ]
        say(table(header, files))


def measure(command: Sequence[str | Path], passing: Sequence[int] = (0,)) -> list[str]:
    """Return wall clock, CPU, the load before, and the peak memory of a command."""
    load, before, began = os.getloadavg()[0], used(), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        _, status, own = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    if run.returncode not in passing:
        raise SystemExit(f"{' '.join(map(str, command[:3]))} ended with {run.returncode}")
    return [f"{wall:.1f}", f"{used() - before:.1f}", f"{load:.1f}", f"{own.ru_maxrss / 1e3:.0f}"]


def used() -> float:
    """Return the processor time of ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
