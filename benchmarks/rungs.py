"""How much a rung is worth: hnswlib built for each, and the same search timed with each.

`python -m benchmarks.rungs` needs g++ and an index; it prints the figures that
fleetbuild/extensions/catalogue/data/speeds.yml quotes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fleetbuild.hardware.flags import flags
from fleetbuild.hardware.rungs import RUNGS, Rung

PACKAGE = "hnswlib==0.8.0"
ROUNDS = 9
SEARCH = """
import time
import hnswlib
import numpy

vectors = numpy.random.default_rng(7).random((3000, 256), dtype=numpy.float32)
index = hnswlib.Index(space="l2", dim=256)
index.init_index(max_elements=len(vectors), M=16, ef_construction=100, random_seed=7)
index.add_items(vectors[:2000], num_threads=1)
index.set_ef(100)
began = time.process_time()
for _ in range(4):
    index.knn_query(vectors[2000:], k=10, num_threads=1)
print(time.process_time() - began)
"""


def main() -> None:
    """Build for every rung that this machine runs, then time them in turns."""
    with tempfile.TemporaryDirectory() as folder:
        builds = {rung.name: build(rung, Path(folder) / rung.name) for rung in here()}
        seconds: dict[str, list[float]] = {name: [] for name in builds}
        for _ in range(ROUNDS):
            for name, path in builds.items():
                seconds[name].append(search(path))
    slowest = min(seconds["x86-64"])  # what else runs on the machine only ever adds
    for name, times in seconds.items():
        figures = {"rung": name, "seconds": sorted(times), "speed": slowest / min(times)}
        sys.stdout.write(json.dumps(figures) + "\n")


def here() -> list[Rung]:
    """The rungs up to avx512 that this machine runs."""
    words = Path("/proc/cpuinfo").read_text(encoding="ascii").split("flags", 1)[1].split("\n")[0]
    known = [RUNGS[name] for name in ("x86-64", "x86-64-v2", "avx", "avx2", "avx512")]
    return [rung for rung in known if rung.features <= set(words.split())]


def build(rung: Rung, folder: Path) -> Path:
    """The package for this rung, with numpy, in a folder of its own."""
    spelled = f"-O3 {flags(rung, 'gcc', None)}"
    environment = {"CFLAGS": spelled, "CXXFLAGS": spelled, "HNSWLIB_NO_NATIVE": "1"}
    subprocess.run(
        ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", folder,
         "--no-cache", "--no-binary", "hnswlib", PACKAGE],
        env={**os.environ, **environment}, check=True,
    )  # fmt: skip
    return folder


def search(folder: Path) -> float:
    """Seconds of CPU time for the search, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SEARCH],
        env={**os.environ, "PYTHONPATH": str(folder)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


if __name__ == "__main__":
    main()
