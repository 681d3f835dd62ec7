"""The place where faults strike: nodes with small disks, plans for each, and runs of the program.

Every node serves the release `first`. A scene's plans install `second` there, which is in the store
already, or `built`, whose wheel must be built first.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fleetbuild
from fleetbuild import Config
from fleetbuild.ansible import _watch
from fleetbuild.config import config_model
from fleetbuild.files import sha256_of
from fleetbuild.models import Inventory, Plan
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.store.wheels import Store
from tests.factories.files import make_wheel
from tests.faults.disk import Disk, root
from tests.fleet.test_apply import source_tree
from tests.lab import Lab
from tests.lab.podman import podman

HERE = Path(__file__).parent / "programs"
RELEASE_FILES = Path(__file__).parents[2] / "plugins/module_utils/release_files.py"
CODES = {0, 3, 5, 6, 7, 8, 9, 130, -signal.SIGKILL}
INSTALL_PATH = "/opt/fleetbuild"
_SAVED = "/var/lib/first"  # on a disk of the node that no fault reaches
_DISK_MB = 3200  # the recipe of a package without one of its own asks for 2 GB; the file is sparse
_LONGEST = 280  # seconds of a run
# The build needs 300 MB of memory, and takes some seconds.
_SETUP = 'time.sleep(3); data = bytearray(300 << 20); data[::4096] = b"x" * len(data[::4096])'


@dataclass(frozen=True)
class Moment:
    """A point of a run: an event ("build progress") or the start of a task on a node."""

    event: str = ""
    task: str = ""

    def is_in(self, line: Mapping[str, Any]) -> bool:
        if self.task:
            return str(line.get("task")).rpartition(" : ")[2] == self.task
        return f"{line.get('stage')} {line.get('state')}" == self.event


@dataclass
class Ended:
    """A run of the program: its exit code, its events and its messages."""

    code: int
    events: list[dict[str, Any]]
    said: str
    struck: bool
    seconds: float

    def story(self) -> str:
        """What to show if a test fails."""
        names = ("stage", "state", "node", "message", "fix")
        told = [e for e in self.events if e["state"] in ("failed", "unreachable", "warning")]
        lines = [" ".join(str(event.get(name)) for name in names) for event in told]
        return f"exit code {self.code} after {self.seconds:.0f} s\n" + "\n".join(
            [*lines, self.said]
        )


@dataclass
class Controller:
    """A state directory whose last plan installs a package, and the program that applies it."""

    state: Path
    package: str
    env: Mapping[str, str] = field(default_factory=dict)

    def start(self, timeout: int, command: Sequence[str] = ()) -> subprocess.Popen[str]:
        words = command or ("apply",)
        options = ("--json", "--state-dir", str(self.state), "--timeout", str(timeout))
        return subprocess.Popen(
            [sys.executable, str(HERE / "controller.py"), *words, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env={**_environment(), **self.env},
        )  # fmt: skip

    def run(
        self,
        *,
        timeout: int = 60,
        at: Sequence[Moment] = (),
        strike: Callable[[subprocess.Popen[str]], None] = lambda _: None,
        command: Sequence[str] = (),
    ) -> Ended:
        """Run the program to its end; call `strike` once all of these moments have come."""
        began, waited, events = time.monotonic(), list(at), []
        with self.start(timeout, command) as process:
            said: list[str] = []
            assert process.stdout
            assert process.stderr
            errors = process.stderr
            reader = threading.Thread(target=lambda: said.extend(errors))
            watchdog = threading.Timer(_LONGEST, process.kill)
            reader.daemon = watchdog.daemon = True  # an interrupted test ends at once
            reader.start()
            watchdog.start()
            for text in process.stdout:
                line = json.loads(text) if text.startswith("{") else {}
                if "stage" in line:
                    events.append(line)
                if waited and waited[0].is_in(line):
                    waited.pop(0)
                    if not waited:
                        strike(process)
            code = process.wait()
            watchdog.cancel()
            reader.join()
        return Ended(code, events, "".join(said), not waited, time.monotonic() - began)

    def check(self) -> None:
        """Check what a run must leave: whole wheels, a readable journal, a free lock."""
        for wheel in Store(self.state / "store").list():
            assert sha256_of(wheel.path) == wheel.sha256, wheel.path
        for path in (self.state / "journal").glob("*.jsonl"):
            lines = path.read_text().splitlines()
            torn = [line for line in lines if not _is_json(line)]
            assert not torn, torn
        with hold_run_lock(self.state / "lock"):
            pass

    def check_nothing_runs(self) -> None:
        """Check that no process of this controller's runs is left, and no secret of them."""
        until = time.monotonic() + 20
        while left := self._left():
            assert time.monotonic() < until, left
            time.sleep(0.3)

    def _left(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = process.joinpath("cmdline").read_bytes().decode("utf-8", "replace")
                mine = f"FLEETBUILD_FAULTS={self.state}\0".encode()
                if (
                    mine in process.joinpath("environ").read_bytes()
                    and int(process.name) != os.getpid()
                ):
                    found.append(words.replace("\0", " "))
            except OSError:
                continue
        return found


def _environment() -> dict[str, str]:
    """The environment of the program. Every start compiles the whole program without bytecode."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[2])}


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class Scene:
    """A lab whose nodes serve `first`, with a controller for each plan.

    Where a method takes a node, several may be joined by commas for the plan of a fleet.
    """

    size = 2 << 20  # bytes of each wheel

    def __init__(self, lab: Lab, folder: Path, disks: Mapping[str, Disk]) -> None:
        self.lab, self.folder, self.disks = lab, folder, disks
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        for name in ("first", "second", "third"):
            data = {f"{name}/__init__.py": b"", f"{name}/data.bin": os.urandom(self.size)}
            make_wheel(self.wheels, name, files=data)
        self.trees = {"built": source_tree(folder / "built", setup=_SETUP)}
        self.base = folder / "base"
        self.plans: dict[tuple[str, str], Plan] = {}
        self.inventories: dict[str, Inventory] = {}
        plan = self._fleet(None).plan(["first==1.0"])
        result = self._fleet(None).apply(plan)
        assert result.exit_code == 0, result
        self.first = str(plan.groups[0].release_id)
        for node in lab.nodes:  # applies remove the oldest release: reset brings this one back
            lab.exec(node, f"cp -a {INSTALL_PATH}/releases/{self.first} {_SAVED}", check=True)

    def _fleet(self, limit: str | None) -> fleetbuild.Fleet:
        return fleetbuild.Fleet(
            self.lab.inventory, config=self.config(), state_dir=self.base, limit=limit
        )

    def config(self, policy: str = "published", labels: str = "files") -> Config:
        return config_model().model_validate(
            {
                "index": [str(self.wheels)],
                "build": {"policy": policy},
                "kubernetes": {"labels": labels},
            }
        )

    def plan(self, node: str, package: str, labels: str = "files") -> Plan:
        """The plan for one node, made while it serves `first`."""
        if (package, labels) not in self.plans:
            tree = self.trees.get(package)
            wanted = f"{package} @ {tree}" if tree else f"{package}==1.0"
            config = self.config("targeted" if tree else "published", labels)
            fleet = fleetbuild.Fleet(
                self.lab.inventory, config=config, state_dir=self.base, limit=node
            )
            self.plans[package, labels] = fleet.plan([wanted])
        return self.plans[package, labels]

    def controller(
        self, node: str, package: str, name: str = "one", labels: str = "files"
    ) -> Controller:
        """A controller with a fresh state directory: a copy of the one that installed `first`."""
        plan, state = self.plan(node, package, labels), self.folder / node / name
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(self.base, state)
        fleetbuild.save_plan(plan, state / "plan.json")
        return Controller(state, package, {"FLEETBUILD_FAULTS": str(state)})

    def plan_again(self, node: str, package: str, controller: Controller) -> None:
        """Give a controller a plan for what the node serves now."""
        if node not in self.inventories:
            self.inventories[node] = fleetbuild.read_inventory(self.lab.inventory, limit=node)
        fleet = fleetbuild.Fleet(
            self.inventories[node], config=self.config(), state_dir=controller.state
        )
        fleet.save_plan(fleet.plan([f"{package}==1.0"]))

    def look(self, node: str) -> dict[str, Any]:
        """What the node serves, read on it, past SSH."""
        done = self.lab.exec(node, f"python3 -B /srv/faults/look.py {INSTALL_PATH}", check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def check(self, node: str, allowed: Sequence[str]) -> str:
        """Check that the node serves one of these releases, undamaged, and that it imports."""
        found = self.look(node)
        assert found["problem"] == "", found
        assert found["current"] in allowed, (found, allowed)
        assert found["verified"], found
        return str(found["current"])

    def reset(self, node: str) -> None:
        """Have the node serve `first` alone, as before any fault."""
        kept = self.first
        self.lab.exec(
            node,
            f"cd {INSTALL_PATH} &&"
            " rm -rf releases/* releases/.[!.]* wheels .wheels .lease current.new &&"
            f" cp -a {_SAVED} releases/{kept} && ln -sfn releases/{kept} current &&"
            f" echo {kept} > history || exit;"
            " rm -rf /home/fleet/.cache/* /home/fleet/.ansible/*;"
            " rm -rf /etc/kubernetes; sync -f .",  # a fault may lose unwritten data
            check=True,
        )

    def container(self, node: str) -> str:
        return self.lab._container(node)

    def revive(self, node: str) -> None:
        """Start a node that was killed, with its disk checked and mounted again."""
        podman("kill", self.container(node), check=False)
        podman("wait", self.container(node), check=False)
        self.disks[node].repair()
        self.lab.start(node)


def make_scene(make_lab: Callable[..., Lab], folder: Path, nodes: Sequence[str]) -> Scene:
    """A lab with these nodes, each with a disk for its releases, builds and Ansible's files."""
    tools = folder / "tools"
    tools.mkdir()
    for file in (HERE / "look.py", RELEASE_FILES):
        shutil.copy(file, tools)
    compiler = ["cc", "-shared", "-fPIC", "-O1", "-o", tools / "clock.so", HERE / "clock.c"]
    subprocess.run(compiler, check=True)
    disks, specs = {}, {}
    for node in nodes:
        disk = Disk(folder / f"{node}.img", folder / "disks" / node).make(_DISK_MB)
        for part in ("opt", "cache", "ansible"):
            root("mkdir", disk.at / part)
        root("chown", "1000:1000", disk.at / "cache", disk.at / "ansible")
        disks[node] = disk
        specs[node] = {
            "hardware": "avx",
            "volumes": [
                f"{disk.at}/opt:{INSTALL_PATH}",
                f"{disk.at}/cache:/home/fleet/.cache",
                f"{disk.at}/ansible:/home/fleet/.ansible",
                f"{tools}:/srv/faults:ro",
            ],
        }
    lab = make_lab({"nodes": specs})
    try:
        return Scene(lab, folder, disks)
    except BaseException:  # a disk that stays mounted fails every later run of pytest
        lab.down()
        for disk in disks.values():
            disk.drop()
        raise


def folders_of_dead_runs() -> list[Path]:
    """Private folders of runs whose controller is dead."""
    return [path for path in _watch.MEMORY.glob(f"{_watch.PREFIX}*") if _watch._abandoned(path)]
