"""What the record of a release's files costs at an install, and what comparing with it costs later.

`python -m benchmarks.records [--files 12000] [--megabytes 300]` measures on this machine's disk,
without nodes, and prints CPU and wall clock of each step. An install without the safety has none
of them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.probe import say
from tests.factories.role_modules import plugin

CHUNK = 1 << 20


def main() -> None:
    """Write files as an install does, then take each step three times; the fastest counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records")
    parser.add_argument("--files", type=int, default=12000)
    parser.add_argument("--megabytes", type=int, default=300)
    given = parser.parse_args()
    files = plugin("module_utils.release_files")
    with tempfile.TemporaryDirectory(prefix="fleetbuild-bench-") as place:
        folder = Path(place) / "release"
        write(folder, given.files, given.megabytes)
        (folder / "bin").mkdir()
        (folder / "bin/python").touch(mode=0o755)
        say(f"{given.files} files, {given.megabytes} MB, load {os.getloadavg()[0]:.1f}")
        measure("flush to the disk (syncfs), once", lambda: files.persist(str(folder)), 1)
        record = files.record(str(folder))
        measure("record at the install", lambda: files.record(str(folder)))
        files.write(str(folder / files.RECORD), record)
        digest = files.digest(record)
        if damage := files.damage(str(folder), digest, True):
            raise SystemExit(damage)
        for what, whole in (("sizes and times", False), ("every byte", True)):
            measure(f"compare {what}", lambda whole=whole: files.damage(str(folder), digest, whole))


def write(folder: Path, count: int, megabytes: int) -> None:
    """Small files in folders of a hundred, and one file with the rest of the bytes."""
    for number in range(count):
        path = folder / f"p{number // 100}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x = 1\n" * 300)
    with (folder / "large").open("wb") as file:
        for _ in range(megabytes - (count * 1800 >> 20)):
            file.write(os.urandom(CHUNK))


def measure(what: str, step: Callable[[], object], times: int = 3) -> None:
    """Print the wall clock and CPU time of a step: its fastest run."""
    wall, cpu = [], []
    for _ in range(times):
        began, used = time.monotonic(), time.process_time()
        step()
        wall.append(time.monotonic() - began)
        cpu.append(time.process_time() - used)
    say(f"{what}: {min(wall):.2f} s, CPU {min(cpu):.2f} s")


if __name__ == "__main__":
    main()
