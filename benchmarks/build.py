"""A small wheel built on one SSH node and served there, beside the same by hand.

python -m benchmarks.build [--package hnswlib==0.8.0] [--rounds 2]

By hand: scp of the sdist, its requirements and uv, `uv build` on the node, scp of the wheel back,
an environment, the wheel and its dependencies by uv, a symlink. fleetbuild also probes, isolates,
audits the wheel, reserves, verifies and records. Both take turns, from a node without any cache;
what comes from the index is here already. What the build took by hand is the compile time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml
from uv import find_uv_bin

from benchmarks.apply import Tree
from benchmarks.install import HAND, LINK, Way, counting, run, timed
from benchmarks.probe import HERE, say
from tests.lab import Lab

NODE = "n1"
EMPTY = "find /opt/fleetbuild -mindepth 1 -delete; rm -rf /home/fleet/.cache /home/fleet/hand; sync"


def ways(lab: Lab, scratch: Path, tree: Tree, programs: Path, compiled: list[float]) -> list[Way]:
    """fleetbuild, and what a user types; `compiled` gets the seconds of each build by hand."""
    options = ("-F", lab.ssh_config)

    def start(words: Sequence[str | Path], calls: Path, **env: str) -> int:
        path = f"{programs}:{os.environ['PATH']}"
        return run(words, {**os.environ, "CALLS": str(calls), "PATH": path, **env}, scratch)

    def fleetbuild(calls: Path) -> int:
        shutil.rmtree(tree.state / "store/wheels")
        line, env = tree.command("apply")
        return start(line, calls, PYTHONPATH=env["PYTHONPATH"])

    def by_hand(calls: Path) -> int:
        files = [path for path in (tree.state / "store/files").glob("*/*") if path.is_file()]
        sdist = next(path.name for path in files if path.name.endswith(".tar.gz"))
        start(["ssh", *options, NODE, "mkdir hand"], calls)
        start(["scp", "-q", *options, *files, find_uv_bin(), f"{NODE}:hand/"], calls)
        began, uv = time.monotonic(), "./uv -q --offline"
        index = "--no-index --find-links ."
        start(
            ["ssh", *options, NODE, f"cd hand && {uv} build --wheel {index} -o out {sdist}"], calls
        )
        compiled.append(time.monotonic() - began)
        start(["scp", "-q", *options, f"{NODE}:hand/out/*.whl", scratch], calls)
        install = f"{uv} venv {HAND} && {uv} pip install {index} -p {HAND} out/*.whl"
        serve = f"cd hand && sudo sh -c '{install} && ln -sfn {HAND} {LINK}'"
        return start(["ssh", *options, NODE, serve], calls)

    return [
        Way("fleetbuild apply", fleetbuild),
        Way("scp, uv build, uv pip and a symlink by hand", by_hand),
    ]


def main() -> None:
    """Bring a node up and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.build")
    parser.add_argument("--package", default="hnswlib==0.8.0")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    scratch, compiled = Path(tempfile.mkdtemp(prefix="fleetbuild-bench-")), list[float]()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        config = scratch / "fleetbuild.yml"
        config.write_text(yaml.safe_dump({"build": {"policy": "targeted"}}))
        spec = {"nodes": {NODE: {"hardware": "avx2", "gpu": False}}}
        lab = stack.enter_context(Lab("bench-build", spec))
        tree = Tree("this", HERE, scratch / "this")
        tree.run("plan", "plan", lab.inventory, "--package", given.package, "--config", config)
        tree.run("first apply, with downloads", "apply")
        found = ways(lab, scratch, tree, counting(scratch), compiled)
        for number in range(given.rounds):
            for way in found if number % 2 == 0 else found[::-1]:
                lab.exec(NODE, EMPTY)
                calls = scratch / "calls"
                calls.write_text("")
                way.memory.append(timed(way.run, calls, way.wall, way.cpu))
                way.sessions.append(len(calls.read_text().splitlines()))
                say(f"{way.name}: {way.wall[-1]:.1f} s, CPU {way.cpu[-1]:.1f} s")
    say(f"load {os.getloadavg()[0]:.1f}; compile time {statistics.median(compiled):.1f} s")
    say("| way | wall | beyond the compile time | CPU | calls of ssh, sftp, scp |")
    say("|---|---|---|---|---|")
    for way in found:
        wall, cpu = statistics.median(way.wall), statistics.median(way.cpu)
        beyond = wall - statistics.median(compiled)
        say(
            f"| {way.name} | {wall:.1f} s | {beyond:.1f} s | {cpu:.1f} s |"
            f" {statistics.median(way.sessions):.0f} |"
        )


if __name__ == "__main__":
    main()
