"""A small wheel installed on SSH nodes, beside a playbook of four tasks, pyinfra, and scp with uv.

python -m benchmarks.install [--nodes 1 6] [--rounds 2] [--before COMMIT] [--megabytes 190]
python -m benchmarks.install --nodes 8 --groups 8
python -m benchmarks.install --here [--rounds 2] [--before COMMIT]   on this machine, without SSH

fleetbuild also probes, reserves, verifies and records; the others do not. All take turns in one run
on one machine, each from an empty install path, with connections of their own. `sessions` counts
the calls of ssh, sftp and scp by the controller for each node. CPU is the controller's; `with the
nodes` adds what the nodes' containers have used by their own account, and nothing else.

With `--groups` the nodes are of as many kinds. Each group gets a wheel of its own from an sdist
with a module in C, which an apply beforehand builds: what is measured takes wheels from the store.

`--here` installs two small wheels, then a small one and numpy, from the store, beside uv, which
gets the same files and compiles them, too. Its CPU includes all processes. numpy comes from PyPI.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from uv import find_uv_bin

from benchmarks.apply import Tree, checkout
from benchmarks.probe import HERE, SCRIPTS, pyinfra, say
from tests.factories.files import make_sdist, make_wheel
from tests.lab import Lab, runnable

HAND = "/opt/fleetbuild/by-hand"
LINK = "/opt/fleetbuild/current"
MAKE = """
import os, pathlib
from tests.factories.files import make_wheel
files = {{"small/__init__.py": b"x = 1", "small/data": os.urandom({size})}}
make_wheel(pathlib.Path({folder!r}), "small", files=files)
"""
PLAYBOOK = """
- hosts: all
  gather_facts: false
  become: true
  tasks:
    - ansible.builtin.copy: {src: "WHEEL", dest: /opt/fleetbuild/by-hand/, mode: "0644"}
    - ansible.builtin.command:
        cmd: python3 -m venv /opt/fleetbuild/by-hand/venv
        creates: /opt/fleetbuild/by-hand/venv/bin/pip
    - ansible.builtin.shell:
        cmd: cd /opt/fleetbuild/by-hand && venv/bin/pip install --no-index NAME && touch installed
        creates: /opt/fleetbuild/by-hand/installed
    - ansible.builtin.file: {src: by-hand/venv, path: /opt/fleetbuild/current, state: link}
"""
DEPLOY = """
from pyinfra.operations import files, server

home = "/opt/fleetbuild/by-hand"
files.put(src="WHEEL", dest=f"{home}/NAME", mode="644", _sudo=True)
server.shell([f"test -e {home}/venv/bin/pip || python3 -m venv {home}/venv"], _sudo=True)
install = f"cd {home} && venv/bin/pip install --no-index NAME && touch installed"
server.shell([f"test -e {home}/installed || ({install})"], _sudo=True)
files.link("/opt/fleetbuild/current", target="by-hand/venv", _sudo=True)
"""


SDIST = {
    "small.c": """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "small"};
PyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&module); }
""",
    "setup.py": """
from setuptools import Extension, setup
setup(ext_modules=[Extension("small", ["small.c"])])
""",
}


@dataclass
class Way:
    """One way to install the wheel, and what each turn took."""

    name: str
    run: Callable[[Path], int]  # returns the memory of the largest process, in kB
    repeats: bool = True  # whether a second run sees that nothing is left to do
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    machine: list[float] = field(default_factory=list)  # the CPU of controller and nodes
    sessions: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    wall_again: list[float] = field(default_factory=list)  # with nothing left to do
    cpu_again: list[float] = field(default_factory=list)


def measure(way: Way, lab: Lab, scratch: Path) -> None:
    """Take one turn from an empty install path."""
    empty(lab)
    calls = scratch / "calls"
    calls.write_text("")
    before = used(lab)
    way.memory.append(timed(way.run, calls, way.wall, way.cpu))
    way.machine.append(way.cpu[-1] + used(lab) - before)
    way.sessions.append(len(calls.read_text().splitlines()) / len(lab.nodes))
    say(
        f"{way.name}: {way.wall[-1]:.1f} s, CPU {way.cpu[-1]:.1f} s,"
        f" with the nodes {way.machine[-1]:.1f} s, sessions {way.sessions[-1]}"
    )
    if way.repeats:
        timed(way.run, calls, way.wall_again, way.cpu_again)
        say(f"  again: {way.wall_again[-1]:.1f} s, CPU {way.cpu_again[-1]:.1f} s")


def empty(lab: Lab) -> None:
    """Remove what any way has installed."""
    clean = "find /opt/fleetbuild -mindepth 1 -delete; cd /home/fleet && rm -f uv *.whl; sync"
    for name in lab.nodes:
        lab.exec(name, clean)


def timed(run: Callable[[Path], int], calls: Path, wall: list[float], cpu: list[float]) -> int:
    """Run once, and note how long it took and the CPU of this machine's processes for it."""
    before, began = os.times(), time.monotonic()
    memory = run(calls)
    after = os.times()
    wall.append(time.monotonic() - began)
    cpu.append(
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return memory


def used(lab: Lab) -> float:
    """Return the seconds of CPU that the nodes have used since they started."""
    # Of version 1 of control groups in nanoseconds, of version 2 in microseconds.
    read = (
        "cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null"
        r" || sed -n 's/^usage_usec \(.*\)/\1000/p' /sys/fs/cgroup/cpu.stat"
    )
    return sum(int(lab.exec(name, read, check=True).stdout) for name in lab.nodes) / 1e9


def counting(scratch: Path) -> Path:
    """A folder of programs that note each call of ssh, sftp and scp in the file $CALLS."""
    folder = scratch / "counting"
    folder.mkdir()
    for name in ("ssh", "sftp", "scp"):
        program = shutil.which(name)
        path = folder / name
        path.write_text(
            f'#!/bin/sh\ncase " $* " in *" -O "*) ;; *) echo {name} >> "$CALLS";; esac\n'
            f'exec {program} "$@"\n'
        )
        path.chmod(0o755)
    return folder


def ways(lab: Lab, scratch: Path, wheel: Path, trees: Sequence[Tree], programs: Path) -> list[Way]:
    """fleetbuild of each tree, the playbook, pyinfra, and what a user types for one node."""

    def start(words: Sequence[str | Path], calls: Path, **env: str) -> int:
        path = f"{programs}:{os.environ['PATH']}"
        return run(words, {**os.environ, "CALLS": str(calls), "PATH": path, **env}, scratch)

    def fleetbuild(tree: Tree) -> Callable[[Path], int]:
        line, env = tree.command("apply")
        own = {"PYTHONPATH": env["PYTHONPATH"]}
        return lambda calls: start(line, calls, **own)

    book = scratch / "four.yml"
    book.write_text(PLAYBOOK.replace("WHEEL", str(wheel)).replace("NAME", wheel.name))

    def playbook(calls: Path) -> int:
        sockets = tempfile.mkdtemp(dir=scratch)
        line: list[str | Path] = [
            SCRIPTS / "ansible-playbook",
            "-i",
            lab.inventory,
            "--forks",
            "25",
            book,
        ]
        return start(line, calls, ANSIBLE_SSH_CONTROL_PATH_DIR=sockets, ANSIBLE_PIPELINING="True")

    deploy = scratch / "deploy.py"
    deploy.write_text(DEPLOY.replace("WHEEL", str(wheel)).replace("NAME", wheel.name))
    operations: list[str | Path] = [*pyinfra(lab, scratch), deploy]

    def by_hand(calls: Path) -> int:
        largest = []
        for name in lab.nodes:
            options = ("-F", lab.ssh_config)
            start(["scp", "-q", *options, str(wheel), find_uv_bin(), f"{name}:"], calls)
            install = f"./uv -q venv {HAND} && ./uv -q pip install --offline -p {HAND} ./*.whl"
            shell = f"sudo sh -c '{install} && ln -sfn {HAND} {LINK}'"
            largest.append(start(["ssh", *options, name, shell], calls))
        return max(largest)

    return [
        *(Way(f"fleetbuild apply ({tree.name})", fleetbuild(tree)) for tree in trees),
        Way("playbook of four tasks, verifies nothing", playbook),
        # It speaks SSH by itself, so that no calls are counted.
        Way("pyinfra, four operations, verify nothing", lambda calls: start(operations, calls)),
        Way("ssh, scp and uv, node by node, verifies nothing", by_hand, repeats=False),
    ]


def run(words: Sequence[str | Path], env: dict[str, str], folder: Path) -> int:
    """Run a command to its end; return the memory of its largest process, in kB."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            list(map(str, words)), env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=said,
            stderr=said,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            raise SystemExit(f"{words}:\n{said.read()[-4000:]}")
    return used.ru_maxrss


def fleet(nodes: int, groups: int, rounds: int, before: str | None, megabytes: int) -> None:
    """Measure this number of nodes, in so many groups, and print the table."""
    kinds = [{"hardware": rung, "gpu": gpu} for gpu in (False, True) for rung in runnable()]
    kinds = kinds[-groups:] if groups > 1 else [{"hardware": "avx2", "gpu": False}]
    scratch = Path(tempfile.mkdtemp(prefix="fleetbuild-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        # In a process of its own: Linux counts the memory of the process that starts another one.
        code = MAKE.format(folder=str(scratch / "wheels"), size=megabytes << 20)
        subprocess.run([sys.executable, "-c", code], cwd=HERE, check=True)
        (wheel,) = (scratch / "wheels").iterdir()
        source = {"index": [str(wheel.parent)], "build": {"policy": "published"}}
        if groups > 1:
            backend = '[build-system]\nrequires = ["setuptools"]\n'
            project = '[project]\nname = "small"\nversion = "1.0"\ndependencies = []\n'
            make_sdist(scratch / "sdists", "small", pyproject=backend + project, files=SDIST)
            source = {"index": [str(scratch / "sdists"), "https://pypi.org/simple"]}
        config = scratch / "fleetbuild.yml"
        rollout = {"canary": 0, "serial": "100%"}
        config.write_text(yaml.safe_dump({**source, "rollout": rollout}))
        trees = [Tree("this", HERE, scratch / "this")]
        if before:
            trees.append(Tree(before, stack.enter_context(checkout(before)), scratch / "before"))
        spec = {"nodes": {f"n{i}": kinds[i % len(kinds)] for i in range(nodes)}}
        lab = stack.enter_context(Lab(f"bench-install-{nodes}", spec))
        for tree in trees:
            tree.run("plan", "plan", lab.inventory, "--package", "small==1.0", "--config", config)
            if groups > 1:
                tree.run("build", "apply")
                empty(lab)
        found = ways(lab, scratch, wheel, trees, counting(scratch))
        for number in range(rounds):
            for way in found if number % 2 == 0 else found[::-1]:
                measure(way, lab, scratch)
    (playbook,) = (way for way in found if way.name.startswith("playbook"))
    one = {kind: statistics.median(getattr(playbook, kind)) for kind in ("wall", "cpu", "machine")}
    load = os.getloadavg()[0]
    say(f"{nodes} node(s), {len(kinds)} group(s), {megabytes} MB, load {load:.1f}; to the playbook")
    say(
        "| way | wall | CPU | with the nodes | largest process | sessions per node"
        " | again: wall | again: CPU |"
    )
    say("|---|---|---|---|---|---|---|---|")
    for way in found:
        taken = {kind: statistics.median(getattr(way, kind)) for kind in one}
        ratios = " | ".join(f"{taken[kind]:.1f} s ({taken[kind] / one[kind]:.2f})" for kind in one)
        say(
            f"| {way.name} | {ratios} | {max(way.memory) // 1024} MB"
            f" | {statistics.median(way.sessions):.0f} |"
            + (
                f" {statistics.median(way.wall_again):.1f} s |"
                f" {statistics.median(way.cpu_again):.1f} s |"
                if way.repeats
                else " - | - |"
            )
        )


def here(rounds: int, before: str | None) -> None:
    """Install from the store on this machine, beside uv by hand, and print the table."""
    rows = [
        row
        for packages in (("small", "tiny"), ("small", "numpy"))
        for row in release_here(packages, rounds, before)
    ]
    say(f"load {os.getloadavg()[0]:.1f}\n| release | way | wall | CPU |\n|---|---|---|---|")
    for row in rows:
        say(row)


def release_here(packages: Sequence[str], rounds: int, before: str | None) -> list[str]:
    """Install a release of these packages, in turns with uv by hand; return rows of the table."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetbuild-bench-")))
        trees = [Tree("this", HERE, scratch / "this")]
        if before:
            trees.append(Tree(before, stack.enter_context(checkout(before)), scratch / "before"))
        for name in ("small", "tiny"):
            make_wheel(scratch / "wheels", name, files={f"{name}/__init__.py": b"x = 1"})
        path, inventory, config = (
            scratch / name for name in ("opt", "inventory.yml", "config.yml")
        )
        local = {"ansible_connection": "local"}
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {"here": local}}}))
        index = [str(scratch / "wheels"), "https://pypi.org/simple"]
        config.write_text(
            yaml.safe_dump({"index": index, "build": {"policy": "published"},
                            "packages": list(packages), "install": {"path": str(path)}})
        )  # fmt: skip
        for tree in trees:
            tree.run("plan", "plan", inventory, "--config", config)
            tree.run("first apply", "apply")
            python = (path / "current" / "bin" / "python").resolve()
            shutil.rmtree(path)
        hand, uv = scratch / "by-hand", find_uv_bin()
        options = "--offline --no-index --no-deps --no-cache --compile-bytecode"
        files = " ".join(map(str, (scratch / "this" / "store" / "files").glob("*/*.whl")))
        shell = (
            f"{uv} -q venv -p {python} {hand} && {uv} -q pip install {options} -p {hand} {files}"
        )
        by_hand = Way("uv by hand", lambda _: run(["sh", "-c", shell], dict(os.environ), scratch))
        for number in range(rounds):
            for tree in trees if number % 2 == 0 else trees[::-1]:
                tree.run("apply", "apply")
                shutil.rmtree(path)
            timed(by_hand.run, scratch, by_hand.wall, by_hand.cpu)
            shutil.rmtree(hand)
    ours = [(f"fleetbuild apply ({each.name})", each.wall, each.cpu) for each in trees]
    taken = [(name, wall["apply"], cpu["apply"]) for name, wall, cpu in ours]
    return [
        f"| {', '.join(packages)} | {name} | {statistics.median(wall):.1f} s"
        f" | {statistics.median(cpu):.1f} s |"
        for name, wall, cpu in (*taken, (by_hand.name, by_hand.wall, by_hand.cpu))
    ]


def main() -> None:
    """Bring the labs up, one after the other, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.install")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 6])
    parser.add_argument("--groups", type=int, default=1, help="nodes of as many kinds")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--megabytes", type=int, default=0, help="size of the wheel")
    parser.add_argument("--here", action="store_true", help="from the store, on this machine")
    given = parser.parse_args()
    if given.here:
        here(given.rounds, given.before)
        return
    for nodes in given.nodes:
        fleet(nodes, given.groups, given.rounds, given.before, given.megabytes)


if __name__ == "__main__":
    main()
