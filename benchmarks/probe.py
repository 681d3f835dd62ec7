"""Probing many SSH nodes, beside `ansible -m setup`, pyinfra and clush, in one run.

python -m benchmarks [--nodes 50] [--rounds 5]

Every figure is the wall clock of a whole process, from its start to its end, reading its inventory
included. The tools take turns in each round, so that a change of the machine's mood hits them all.
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
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.lab import Lab

COMMAND = "uname -a"
HERE = Path(__file__).parents[1]
RESULTS = HERE / "docs" / "evidence" / "probe.json"
SCRIPTS = Path(sys.executable).parent
SINGLE = f"""
import sys, time
import fleetbuild
nodes = fleetbuild.read_inventory(sys.argv[1]).nodes
from fleetbuild.probe.probing import ask
began = time.monotonic()
found = ask(nodes, b"{COMMAND}\\n", (), lambda answer, _: {{"said": answer.out.decode()}})
print(f"{{time.monotonic() - began:.3f}}", file=sys.stderr)
assert all("Linux" in one["said"] for one in found.values())
"""
FULL = """
import sys, time
import fleetbuild
nodes = fleetbuild.read_inventory(sys.argv[1]).nodes
from fleetbuild.probe.probing import probe
began = time.monotonic()
found = probe(nodes)
print(f"{time.monotonic() - began:.3f}", file=sys.stderr)
assert all({"cpuinfo", "python"} <= one.capture.keys() for one in found.values())
"""


@dataclass
class Tool:
    """One way to ask all nodes, and how long it took each time."""

    name: str
    words: list[str]
    answers: str | None = None  # what its output holds once for each node
    env: Mapping[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)  # without reading the inventory

    def run(self, nodes: int, scratch: Path) -> None:
        """One turn; a turn in which a node did not answer is no turn."""
        with fresh_control_path(scratch) as control:
            began = time.monotonic()
            ended = subprocess.run(
                self.words,
                text=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                cwd=HERE,
                env={
                    **os.environ,
                    **(control if self.name.startswith("ansible") else {}),
                    **self.env,
                },
                check=False,
            )
            self.seconds.append(time.monotonic() - began)
        answered = (ended.stdout + ended.stderr).count(self.answers) if self.answers else nodes
        if ended.returncode != 0 or answered < nodes:
            raise SystemExit(f"{self.name}: {answered} of {nodes}\n{ended.stderr[-3000:]}")
        if self.answers is None:
            self.inside.append(float(ended.stderr.split()[-1]))

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@contextmanager
def fresh_control_path(scratch: Path) -> Iterator[dict[str, str]]:
    """Ansible keeps its connections open for the next run; here each run makes its own.

    Only Ansible is told: the variable is a setting of Ansible's, for which fleetbuild would look.
    """
    folder = Path(tempfile.mkdtemp(dir=scratch))
    try:
        yield {"ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder)}
    finally:
        for socket in folder.iterdir():
            words = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "x"]
            subprocess.run(words, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def tools(lab: Lab, scratch: Path) -> list[Tool]:
    """All of them, with the same user, key and known_hosts, host keys checked."""
    addresses = [node.address for node in lab.nodes.values()]
    options = f"-o UserKnownHostsFile={lab.known_hosts} -o IdentitiesOnly=yes"
    common = {
        "ansible_user": "fleet",
        "ansible_ssh_private_key_file": str(lab.key),
        "ansible_ssh_common_args": options,
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {name: {"ansible_host": node.address} for name, node in lab.nodes.items()}
    inventory = scratch / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"vars": common, "hosts": hosts}}))
    ansible, count = str(SCRIPTS / "ansible"), str(len(addresses))
    asking = [ansible, "-i", str(inventory), "all", "-f", count]
    clush = ["clush", "-f", "64", "-w", ",".join(addresses), "-l", "fleet"]
    return [
        Tool("fleetbuild, single command", [sys.executable, "-c", SINGLE, str(inventory)]),
        Tool("fleetbuild, full probe", [sys.executable, "-c", FULL, str(inventory)]),
        Tool("ansible -m setup", [*asking, "-m", "setup"], "| SUCCESS =>"),
        Tool(
            "ansible -m setup, pipelining",
            [*asking, "-m", "setup"],
            "| SUCCESS =>",
            {"ANSIBLE_PIPELINING": "1"},
        ),
        Tool("ansible -m raw, single command", [*asking, "-m", "raw", "-a", COMMAND], "| CHANGED"),
        Tool(
            "pyinfra, single command",
            [*pyinfra(lab, scratch), "exec", "--", *COMMAND.split()],
            "Linux ",
        ),
        Tool(
            "clush, single command",
            [*clush, "-o", f"-i {lab.key} {options} -o BatchMode=yes", COMMAND],
            "Linux ",
        ),
    ]


def pyinfra(lab: Lab, scratch: Path) -> list[str]:
    """Install pyinfra into an environment of its own; return its command for these nodes."""
    say("Installing pyinfra into a virtual environment of its own")
    venv.create(scratch / "venv", with_pip=True)
    pip = [str(scratch / "venv/bin/pip"), "install", "--quiet", "pyinfra"]
    subprocess.run(pip, check=True, stdout=subprocess.DEVNULL)
    data = {
        "ssh_user": "fleet",
        "ssh_key": str(lab.key),
        "ssh_known_hosts_file": str(lab.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }
    fleet = scratch / "fleet.py"
    fleet.write_text(f"nodes = ({[node.address for node in lab.nodes.values()]!r}, {data!r})\n")
    return [str(scratch / "venv/bin/pyinfra"), "-y", str(fleet)]


def main() -> None:
    """Bring the lab up, measure, add the run to docs/evidence/probe.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    fleet = {f"n{i:02}": {"hardware": "x86-64-v2"} for i in range(given.nodes)}
    with tempfile.TemporaryDirectory(prefix="fleetbuild-bench-") as place:
        scratch = Path(place)
        say(f"Bringing up {given.nodes} nodes")
        with Lab("bench", {"nodes": fleet}) as lab:
            measured = tools(lab, scratch)
            loads = measure(measured, given.nodes, given.rounds, scratch)
            run = run_of(measured, given, loads, versions(scratch))
    data = json.loads(RESULTS.read_text("utf-8"))
    data["runs"].append(run)
    RESULTS.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    say(json.dumps(run, indent=1))


def measure(measured: list[Tool], nodes: int, rounds: int, scratch: Path) -> list[float]:
    """Let all take turns; give the machine's load before each round."""
    loads = []
    for number in range(rounds):
        loads.append(os.getloadavg()[0])
        for tool in measured[number:] + measured[:number]:  # nobody always follows the same one
            tool.run(nodes, scratch)
            say(f"round {number + 1}: {tool.name}: {tool.seconds[-1]:.2f} s")
    return loads


def run_of(
    measured: list[Tool], given: argparse.Namespace, loads: list[float], said: list[str]
) -> dict[str, Any]:
    """Return this run as docs/evidence/probe.json holds it."""
    commit = ["git", "rev-parse", "--short=8", "HEAD"]
    head = subprocess.run(commit, cwd=HERE, capture_output=True, text=True, check=False)
    load = ", ".join(f"{load:.1f}" for load in loads)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores ({cpu()}); load before the rounds {load}",
        "commit": head.stdout.strip() or None,
        "command": f"python -m benchmarks --nodes {given.nodes} --rounds {given.rounds}",
        "note": ", ".join(said),
        "rows": [[tool.name, round(tool.median, 2)] for tool in measured],
    }


def cpu() -> str:
    """The controller's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "?")


def versions(scratch: Path) -> list[str]:
    """What was measured."""
    said = []
    for words in (
        [str(SCRIPTS / "ansible"), "--version"],
        [str(scratch / "venv/bin/pyinfra"), "--version"],
        ["clush", "--version"],
        ["ssh", "-V"],
    ):
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        said.append((ended.stdout + ended.stderr).splitlines()[0].strip())
    return said


def say(line: str) -> None:
    """Progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
