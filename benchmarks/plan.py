"""How long `fleetbuild plan` takes for 1,000 and 10,000 nodes, read from captures.

python -m benchmarks.plan [--nodes 1000 10000]

Each node has a capture of its own, made from those of the tests with other sizes of memory. The
second run finds the inventory kept. A published wheel is planned, so no index is asked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import yaml

from benchmarks.apply import Tree
from benchmarks.probe import HERE, say
from tests.factories.files import make_wheel

CAPTURES = HERE / "tests" / "unit" / "data" / "seed-fleet"


def lay_captures(folder: Path, nodes: int) -> Path:
    """Write a capture for each node, and the inventory beside them; return the inventory."""
    kinds = sorted(path for path in CAPTURES.iterdir() if (path / "cpuinfo").is_file())
    names = [f"n{number:05d}" for number in range(nodes)]
    for number, name in enumerate(names):
        kind, own = kinds[number % len(kinds)], folder / "captures" / name
        own.mkdir(parents=True)
        for file in kind.iterdir():
            if file.name != "meminfo":
                os.link(file, own / file.name)
        (own / "meminfo").write_text(f"MemTotal: {64_000_000 + number} kB\n")
    inventory = folder / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {name: {} for name in names}}}))
    return inventory


def measure(nodes: int) -> tuple[list[float], list[float]]:
    """Return the wall clock and the CPU of two runs for this number of nodes."""
    folder = Path(tempfile.mkdtemp(prefix="fleetbuild-bench-", dir=HERE / ".lab"))
    try:
        inventory = lay_captures(folder, nodes)
        wheel = make_wheel(folder / "wheels", "small", files={"small/__init__.py": b"x = 1\n"})
        config = folder / "fleetbuild.yml"
        config.write_text(
            yaml.safe_dump({"index": [str(wheel.parent)], "build": {"policy": "published"}})
        )
        tree = Tree(f"{nodes} nodes", HERE, folder / "state")
        for _ in range(2):
            words = ("--facts", folder / "captures", "-p", "small==1.0", "--config", config)
            tree.run("plan", "plan", inventory, *words)
    finally:
        shutil.rmtree(folder)
    return tree.wall["plan"], tree.cpu["plan"]


def main() -> None:
    """Plan for each number of nodes, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000])
    (HERE / ".lab").mkdir(exist_ok=True)
    rows = [(nodes, *measure(nodes)) for nodes in parser.parse_args().nodes]
    say(f"load {os.getloadavg()[0]:.1f}")
    say("| nodes | wall, s | CPU, s | again: wall, s | CPU, s | CPU for each 1,000 nodes, s |")
    say("|---|---|---|---|---|---|")
    for nodes, wall, cpu in rows:
        each = cpu[1] / nodes * 1000
        say(
            f"| {nodes:,} | {wall[0]:.1f} | {cpu[0]:.1f} | {wall[1]:.1f} | {cpu[1]:.1f}"
            f" | {each:.2f} |"
        )


if __name__ == "__main__":
    main()
