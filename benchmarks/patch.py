"""An upgrade of a large wheel by a patch, beside the whole wheel: bytes, CPU and memory.

python -m benchmarks.patch [PACKAGE FROM TO ...]   three words for each; downloads the wheels

The controller's code makes the patch, and a node's code makes the wheel of it, on this machine.
The wheels are those of Linux on Arm, whose torch has no CUDA.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.probe import say
from fleetbuild.apply import wheel_patches
from fleetbuild.files import sha256_of
from fleetbuild.models.role_parameters import InstalledWheel
from tests.factories.role_modules import plugin

DEFAULT = (
    *("numpy", "2.2.4", "2.2.5", "scipy", "1.15.2", "1.15.3", "pyarrow", "19.0.0", "19.0.1"),
    *("torch", "2.9.0", "2.9.1"),
)
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")


def fetch(folder: Path, package: str, version: str) -> Path:
    """Download a wheel; return its path, in a folder named by its hash, as the store keeps it."""
    here = folder / version
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(here)]
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    only = ("--only-binary=:all:", "--python-version=3.12", *platforms)
    subprocess.run([*line, *only, f"{package}=={version}"], check=True)
    (wheel,) = here.glob("*.whl")
    kept = folder / sha256_of(wheel) / wheel.name
    kept.parent.mkdir()
    return wheel.rename(kept)


def make(old: Path, new: InstalledWheel, folder: Path) -> dict[str, Any]:
    """Make a patch as the controller does; return what a node has to know of it."""
    zstd = wheel_patches._find_zstd()
    if not zstd:
        raise SystemExit("zstd 1.4.5 or newer is missing.")
    return wheel_patches._make(zstd, folder, old, new, time.monotonic() + 600)


def put_together(patch: dict[str, Any], path: Path, old: Path, target: Path) -> str:
    """Make the wheel as a node does; return its hash."""
    made: str = plugin("module_utils.wheel_patch").apply(patch, str(path), str(old), str(target))
    return made


def measured(work: Callable[[], Any]) -> tuple[Any, float, int]:
    """Do this; return its outcome, CPU seconds, and the memory of the largest process in MB."""
    outcome = work()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    return outcome, cpu, max(each.ru_maxrss for each in used) >> 10


def alone(work: Callable[[], Any]) -> tuple[Any, float, int]:
    """Measure this in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        imports = pool.submit(measured, int).result()[1]
        outcome, cpu, memory = pool.submit(measured, work).result()
    return outcome, cpu - imports, memory


def row(package: str, old_version: str, new_version: str) -> str:
    """Measure an upgrade; return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="fleetbuild-bench-") as place:
        folder = Path(place)
        old, new = (fetch(folder, package, version) for version in (old_version, new_version))
        wheel = InstalledWheel(path=str(new), file=new.name, sha256=new.parent.name)
        patch, cpu, memory = alone(partial(make, old, wheel, folder))
        sizes = new.stat().st_size / 1e6, (folder / "patch").stat().st_size / 1e6
        again = partial(put_together, patch, folder / "patch", old, folder / "made.whl")
        sha256, its_cpu, its_memory = alone(again)
        if sha256 != wheel.sha256:
            raise SystemExit(f"{package}: the node makes another wheel.")
    return (
        f"| {package} {old_version}, {new_version} | {sizes[0]:.1f} | {sizes[1]:.1f}"
        f" | {cpu:.0f} | {memory} | {its_cpu:.0f} | {its_memory} |"
    )


def main() -> None:
    """Print the table."""
    words = sys.argv[1:] or DEFAULT
    rows = [row(*words[at : at + 3]) for at in range(0, len(words), 3)]
    say("| from, to | wheel, MB | patch, MB | controller: CPU, s | MB | node: CPU, s | MB |")
    say("|---|--:|--:|--:|--:|--:|--:|")
    for line in rows:
        say(line)


if __name__ == "__main__":
    main()
