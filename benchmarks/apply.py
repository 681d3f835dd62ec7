"""How long six nodes take to install, to change nothing and to roll back; one hung node of twelve.

python -m benchmarks.apply [--rounds 2] [--before COMMIT]   six nodes; COMMIT takes turns with this
python -m benchmarks.apply --hung [--build 120]             twelve nodes in three groups

Each figure is of a whole process of the command line. Its CPU time includes Ansible's, and changes
less with the load of the machine than its wall clock. Figures of the nodes are in the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import yaml

from benchmarks.probe import HERE, say
from tests.factories.files import make_wheel
from tests.fleet.test_apply import source_tree
from tests.lab import Lab, default_fleet

FILES, MEGABYTES = 2000, 30  # of each release
STEPS = ("install", "no-op apply", "rollback")


@dataclass
class Tree:
    """A checkout of fleetbuild with its own state directory, and how long its commands took."""

    name: str
    checkout: Path
    state: Path
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def command(self, *words: str | Path) -> tuple[list[str], dict[str, str]]:
        kept = {k: text for k, text in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        line = [sys.executable, "-m", "fleetbuild", *map(str, words)]
        return [*line, "--state-dir", str(self.state)], {**kept, "PYTHONPATH": str(self.checkout)}

    def run(self, what: str, *words: str | Path) -> None:
        """Run a command to its end and note how long it took."""
        line, env = self.command(*words)
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                line,
                env=env,
                cwd=self.state.parent,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
            _, status, used = os.wait4(process.pid, 0)
            wall = time.monotonic() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            if process.returncode != 0:
                raise SystemExit(f"{self.name}: {' '.join(line)}:\n{said.read()[-4000:]}")
        cpu = used.ru_utime + used.ru_stime
        self.wall.setdefault(what, []).append(wall)
        self.cpu.setdefault(what, []).append(cpu)
        say(f"{self.name}: {what}: {wall:.1f} s, CPU {cpu:.1f} s")


def six_nodes(scratch: Path, rounds: int, before: str | None) -> None:
    """Measure six nodes with this checkout and, in turns, with the one of an earlier commit."""
    wheels, config = scratch / "wheels", scratch / "fleetbuild.yml"
    for name in ("one", "two"):
        files = {f"{name}/m{i}.py": b"x = 1\n" * 100 for i in range(FILES)}
        files |= {f"{name}/__init__.py": b"", f"{name}/data": os.urandom(MEGABYTES << 20)}
        make_wheel(wheels, name, files=files)
    config.write_text(yaml.safe_dump({"index": [str(wheels)], "build": {"policy": "published"}}))
    with ExitStack() as stack:
        trees = [Tree("this", HERE, scratch / "this")]
        if before:
            trees.append(Tree(before, stack.enter_context(checkout(before)), scratch / "before"))
        lab = stack.enter_context(Lab("bench-apply", default_fleet()))
        for number in range(rounds):
            say(f"round {number + 1}, load {os.getloadavg()[0]:.1f}")
            for tree in trees if number % 2 == 0 else trees[::-1]:
                turn(tree, lab, config)
    for what in STEPS:
        parts = [
            f"{tree.name} {min(tree.wall[what]):.1f} to {max(tree.wall[what]):.1f} s"
            f" (CPU {statistics.median(tree.cpu[what]):.1f} s)"
            for tree in trees
        ]
        wall, cpu = (
            [statistics.median(each[what]) for each in (getattr(t, kind) for t in trees)]
            for kind in ("wall", "cpu")
        )
        ratio = f": {wall[0] / wall[-1]:.2f} times, CPU {cpu[0] / cpu[-1]:.2f}" if before else ""
        say(f"{what}: {'; '.join(parts)}{ratio}")


def turn(tree: Tree, lab: Lab, config: Path) -> None:
    """Install one release, then measure the next one, an apply of it again, and the way back."""
    for name in lab.nodes:
        lab.exec(name, "find /opt/fleetbuild -mindepth 1 -delete; sync")
    for name in ("one", "two"):
        package = ("--package", f"{name}==1.0", "--config", config)
        tree.run(f"plan {name}", "plan", lab.inventory, *package)
        tree.run("install" if name == "two" else "first install", "apply")
    tree.run("no-op apply", "apply")
    tree.run("rollback", "rollback", lab.inventory, "--yes")


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """An earlier commit of this repository in a folder of its own."""
    git = ["git", "-C", str(HERE), "worktree"]
    folder = Path(tempfile.mkdtemp(prefix="fleetbuild-before-"))
    subprocess.run([*git, "add", "--quiet", "--detach", folder, commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", folder], check=True)


def one_hung(scratch: Path, build: int) -> None:
    """Apply to twelve nodes twice: once undisturbed, once with a node that stands still."""
    rungs = {name.rpartition("-")[0] for name in default_fleet()["nodes"]}
    nodes = {f"{r}-{i}": {"hardware": r, "gpu": False} for r in sorted(rungs) for i in range(1, 5)}
    tree = Tree("this", HERE, scratch / "state")
    with Lab("bench-hung", {"nodes": nodes}) as lab, ExitStack() as silence:
        found = {}
        for what, package in (("all answer", "one"), ("one hangs", "two")):
            source = source_tree(scratch / package, setup=f"time.sleep({build})")
            tree.run(f"plan {package}", "plan", lab.inventory, "--package", f"{package} @ {source}")
            hung = sorted(lab.nodes)[1]  # of the first batch after the canary

            def stop(node: str, hangs: bool = what == "one hangs", hung: str = hung) -> None:
                if hangs and node == hung:
                    silence.enter_context(lab.silent(hung))

            found[what] = served(tree, stop)
            silence.close()
    others = {what: {n: s for n, s in each.items() if n != hung} for what, each in found.items()}
    group = hung.rpartition("-")[0]
    for name, chosen in (
        ("the other 11 nodes", others),
        (
            "the 8 nodes of the other groups",
            {
                what: {n: s for n, s in each.items() if not n.startswith(f"{group}-")}
                for what, each in others.items()
            },
        ),
    ):
        calm, held = (max(chosen[what].values()) for what in ("all answer", "one hangs"))
        counts = [len(each) for each in chosen.values()]
        say(f"{name} {counts}: {calm:.0f} s, with a hung one {held:.0f} s, {held / calm:.2f} times")


def served(tree: Tree, on_start: Callable[[str], None]) -> dict[str, float]:
    """Apply; return after how many seconds each node served. `on_start` hears of each node whose
    installation starts."""
    line, env = tree.command("apply", "--json")
    found: dict[str, float] = {}
    began = time.time()
    with subprocess.Popen(
        line, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout  # noqa: S101 (a pipe)
        for text in process.stdout:
            event = json.loads(text)
            about = (event.get("stage"), event.get("state"))
            if about == ("install", "started"):
                for node in event.get("nodes", ()):
                    on_start(node)
            if about == ("activate", "ok"):
                at = datetime.fromisoformat(event["time"]).timestamp()
                found[event["node"]] = at - began
    say(f"exit code {process.returncode}, {len(found)} nodes, {time.time() - began:.0f} s")
    return found


def main() -> None:
    """Bring a lab up and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apply")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--hung", action="store_true")
    parser.add_argument("--build", type=int, default=120, help="seconds of each build")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="fleetbuild-bench-"))
    try:
        if given.hung:
            one_hung(scratch, given.build)
        else:
            six_nodes(scratch, given.rounds, given.before)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
