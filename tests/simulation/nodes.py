"""Nodes: the real module `release` on a folder for each, and the tasks of the playbooks.

Not real: the programs that it starts (venv, uv, the release's checks), who uses a release, and
the node's clock. A node restarts, stands still or fills up before any change of a file.
Paths are text here, as in the modules: Path takes a tenth of a schedule's time.
"""

# ruff: noqa: PTH102, PTH119, PTH120

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fleetbuild.models import Facts, Manifest
from tests.factories.role_modules import ALONE, plugin
from tests.simulation.world import Ended, Process, Task, World, running

release = plugin("modules.release")
_lease = plugin("module_utils.release_lease")
_making = plugin("module_utils.release_making")
_receiving = plugin("module_utils.release_receiving")
_verifying = plugin("module_utils.release_verifying")
_files = plugin("module_utils.release_files")
_root = plugin("module_utils.release_root")
_in_use = plugin("module_utils.releases_in_use")
_switching = plugin("module_utils.release_switching")
_installer = plugin("module_utils.wheel_installer")

SITE = "lib/python3.11"  # a folder less than in a real one
SILENCE = 60.0  # seconds until a node that stands still is given up
Reply = dict[str, Any]
Work = Callable[[], Reply]
Steps = Generator[tuple[str, Work], Any, str]


class TaskFailed(Exception):
    """A task of a playbook failed on its node."""

    def __init__(self, message: str, result: Reply | None = None) -> None:
        super().__init__(message)
        self.result = result or {}


class Module(Process):
    """A module that runs on a node. It goes on if its controller does not."""

    def __init__(self, node: SimulatedNode, run: Any) -> None:
        self.node, self.run, self.dead = node, run, False
        self.state = ""  # what it is asked for
        self.task: Task | None = None

    def change(self, paths: tuple[Any, ...]) -> None:
        """See Process."""
        if self.dead:
            raise Ended
        node = self.node
        node.changes += 1
        if node.fuse and node.holder is self.run and not node.fuse.tick(paths):
            fuse, node.fuse = node.fuse, None
            if fuse.restarts:
                node.restart(by=self)
                raise Ended
            node.fill_up()
        if node.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(node.folder))

    def check(self, task: Task) -> None:  # noqa: ARG002
        """See Process."""
        if self.dead:
            raise Ended
        self.node.looked_at(self)


@dataclass
class Fuse:
    """Counts changes of files down; `of`: only of those with this in their names."""

    left: int
    of: str = ""
    restarts: bool = True  # else the disk is full then

    def tick(self, paths: tuple[Any, ...]) -> int:
        """Count one; return how many are left."""
        self.left -= self.of in str(paths)
        return self.left


@dataclass(eq=False)
class SimulatedNode:
    """A node: its folder, its facts, and how it is."""

    world: World
    name: str
    folder: Path
    about: Facts
    bad: Callable[[str], str]  # by a release's group and versions: "", "fails" or "hangs"
    changes: int = 0  # of files, by modules
    readings: int = 0  # of its clock
    boot: int = 1
    booted: float = 0.0
    down_until: float = 0.0
    still_until: float = 0.0
    hold: float = 0.0  # for so long the next module takes longer
    full: bool = False
    cuts: bool = False  # the next wheel that arrives
    withdrawn: bool = False  # by a run, so that it serves nothing
    liar: str = ""
    lied: bool = False  # ever: what it said of its lease may stay
    fuse: Fuse | None = None
    modules: dict[Module, None] = field(default_factory=dict)  # in order, as World.tasks
    connections: dict[Any, None] = field(default_factory=dict)
    builds: dict[str, float] = field(default_factory=dict)  # key -> when it ends
    built: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)  # releases whose checks passed here
    holder: Any = None  # the run that reserved the releases last
    watch: Callable[[SimulatedNode, Module | None], None] = lambda *_: None
    whole: Callable[[SimulatedNode], None] = lambda _: None

    def __post_init__(self) -> None:
        self._looked_up, self._facts = -1, self.about  # at so many changes, and the facts
        self.lease_read, self.lease = -1, dict[str, Any]()  # at so many changes, and the lease
        self.release_text = ""  # the section of these facts with its releases
        self.root = _root.Root(str(self.folder))
        self.staging = self.folder / "wheels"

    def looked_at(self, module: Module | None) -> None:
        """Have the rules look at this node."""
        self.watch(self, module)

    @property
    def answers(self) -> bool:
        """Whether it does, to anybody."""
        return self.world.now >= max(self.down_until, self.still_until)

    def restart(self, seconds: float = 40.0, by: Module | None = None) -> None:
        """End all processes and start again."""
        self.world.tell(f"{self.name} restarts")
        self.boot, self.booted = self.boot + 1, self.world.now + seconds
        self.down_until, self.still_until = self.world.now + seconds, 0.0
        self.builds.clear()
        for module in self.modules:
            module.dead = True
            if module.task:
                self.world.wake(module.task)
        self.modules.clear()
        for connection in tuple(self.connections):
            connection.lose("connection reset", 0.0)
        self.looked_at(by)
        self.whole(self)

    def stand_still(self, seconds: float) -> None:
        """Do nothing for some time; whoever waits for longer than SILENCE gives up."""
        self.world.tell(f"{self.name} stands still for {seconds:.0f} s")
        self.still_until = max(self.still_until, self.world.now + seconds)
        if seconds > SILENCE:
            for connection in tuple(self.connections):
                connection.lose_later()

    def arm(self, fuse: Fuse) -> None:
        """Restart, or fill up, after some changes of files."""
        self.fuse = fuse

    def lie(self, how: str) -> None:
        """Answer with lies from now on."""
        self.liar, self.lied = how, True

    def fill_up(self) -> None:
        """Have a full disk for some time."""
        self.world.tell(f"the disk of {self.name} is full")
        self.full = True
        self.world.at(self.world.chance.uniform(5, 300), lambda: setattr(self, "full", False))

    def run(self, by: Any, work: Work, then: Callable[[Any], None]) -> None:
        """Run a module for a run; `then` gets its reply, or what it raised."""
        module = Module(self, by)

        def perform() -> None:
            outcome: Any
            try:
                hold = self.hold if self.holder is by else 0.0  # once it is reserved
                self.hold -= hold
                self.pause(hold + 0.1, hold + 1.5)
                outcome = work()
                self.looked_at(module)  # before another module changes something here
                self.pause(0.0, 0.2)
            except (TaskFailed, release.Problem, OSError) as problem:
                outcome = problem
            finally:
                self.modules.pop(module, None)
            self.looked_at(module)
            self.whole(self)
            then(outcome)

        self.modules[module] = None
        module.task = self.world.start(perform, module)

    def pause(self, least: float, most: float) -> None:
        """Let the module that runs now take its time; a node that stands still takes more."""
        self.world.sleep(self.world.chance.uniform(least, most))
        while self.world.now < self.still_until:
            self.world.sleep(self.still_until - self.world.now + 0.01)

    # Its content

    def facts(self) -> Facts:
        """Return what a probe reads."""
        if self._looked_up != self.changes:
            self._looked_up, self._facts = self.changes, self._look_up()
        return self._full(self._facts) if self.full else self._facts

    def _full(self, facts: Facts) -> Facts:
        return facts.model_copy(update={"install_free_gb": 0.01, "disk_gb": 0.01})

    def _look_up(self) -> Facts:
        releases, damaged, previous = {}, {}, {}
        if found := self.root.manifest(self.root.serving()):
            manifest = Manifest.model_validate(found)
            if damage := self.root.damage(self.root.serving(), False, found):
                damaged["default"] = damage
                manifest = manifest.model_copy(update={"verified": False})
            releases["default"] = manifest
        if before := self.root.previous():
            previous["default"] = before
        self.release_text = "\n".join(made.model_dump_json() for made in releases.values())
        found = {"release": releases, "damaged": damaged, "previous": previous}
        return self.about.model_copy(update={**found, "install_free_gb": 50.0, "disk_gb": 50.0})

    def damage(self) -> None:
        """Change a file of the current release and a kept wheel, as a disk or a person does.

        The next wheel that arrives, or comes of a patch, is damaged, too.
        """
        self.cuts = True
        file = self.folder / "current" / "lib" / "python3.11" / "changed"
        if file.parent.is_dir():
            self.changes += 1
            self.world.tell(f"{self.name}: a file of its release changes")
            file.write_text("changed")
            for kept in self.kept_wheels()[:1]:
                kept.write_text("changed")

    def kept_wheels(self) -> list[Path]:
        """Return the wheels that are kept for later releases."""
        return sorted((self.folder / ".wheels").glob("*"))

    # The playbooks, as their tasks go

    def play(self, playbook: str, job: Any) -> Steps:
        """Return the steps of a playbook for this node."""
        steps: dict[str, Callable[[Any], Steps]] = {
            "install.yml": self._install,
            "clean_up.yml": self._clean_up,
            "rollback.yml": self._rollback,
            "build.yml": self._build,
        }
        return steps[playbook](job)

    def _module(self, state: str, job: Mapping[str, Any], **more: Any) -> Work:
        keys = (*ALONE, "release_id", "keep", "in_use", "python")
        known = {name: job[name] for name in keys if name in job}
        folder = str(self.folder)
        about = {"path": folder, "root": folder, "staging": str(self.staging)}
        defaults = {"release_id": "", "keep": 2, "in_use": {}, "name": "default", "whole": False}
        params = {**ALONE, **defaults, "activate": False, "verify": {}, **known, **about}
        params |= {"state": state, **more}

        def work() -> Reply:
            process = running().process
            assert isinstance(process, Module)
            process.state = state
            lease, holder = lease_of(self), self.holder
            counter, other = lease.get("counter"), held_by(lease) not in ("", params["controller"])
            if state == "previous" and not other:  # it takes the lease by itself
                self.holder = process.run
                self.withdrawn = self.withdrawn or params["withdraw"]
            try:
                reply = release.step(self.root, params, False)
            except (OSError, release.Problem) as problem:
                if lease_of(self).get("counter") == counter:
                    self.holder = holder
                if isinstance(problem, OSError):
                    raise TaskFailed(release.failure(self.root, problem)) from None
                raise
            if reply.get("counter"):
                assert not other, f"{self.name} was reserved twice at once"
                self.holder = process.run
            return self._tell_lies(state, reply)

        return work

    def _install(self, job: Mapping[str, Any]) -> Steps:
        counter, result = 0, Reply()
        try:
            reserve = self._module("begun", job)
            begun = yield "Reserve the releases for this run", reserve
            counter = begun["counter"]
            lacks = {file["sha256"] for file in begun["missing"]}
            files = [*job["wheels"], *([job["installer"]] if job.get("installer") else [])]
            send = [file for file in files if file["sha256"] in lacks]
            if send and not begun["complete"]:
                yield "Copy wheels", lambda: self._receive(begun["incoming"], send)
            about = {name: job[name] for name in ("imports", "checks", "features") if name in job}
            wanted = {**about, "timeout": 300} if job.get("verify", True) else {}
            result = yield (
                "Make the release",
                self._module(
                    "present", job, counter=counter,
                    whole=begun["complete"], verify=wanted, activate=job.get("switch", True),
                ),
            )  # fmt: skip
            verification = result.get("verification") or {}
            if verification.get("ok") is False:
                raise TaskFailed(verification["reason"], result)
        except TaskFailed as problem:
            yield from self._end(job, counter)
            return str(problem)
        if not (result.get("active") or verification.get("ok")):
            yield from self._end(job, counter)
        return ""

    def _end(self, job: Mapping[str, Any], counter: int) -> Steps:
        if counter:
            yield "End the reservation", self._module("ended", job, counter=counter)
        return ""

    def _clean_up(self, job: Mapping[str, Any]) -> Steps:
        begin = self._module("begun", {**job, "release_id": "", "wheels": []})
        begun = yield "Reserve the releases for this run", begin
        yield from self._end(job, begun["counter"])
        return ""

    def _rollback(self, job: Mapping[str, Any]) -> Steps:
        yield "Switch to the previous release", self._module("previous", job)
        return ""

    def _receive(self, folder: str, files: list[dict[str, Any]]) -> Reply:
        process = running().process
        for file in files:
            if isinstance(process, Module) and self.holder is process.run:
                kept = _receiving.find_kept(self.root, file)
                assert not kept, f"{file['file']} is sent, and {self.name} has it in {kept}"
            target = f"{folder}/{file['sha256']}/{file['file']}"
            content = _read(file["path"])
            _write(target, content[: len(content) // 2])
            self.pause(0.5, 20.0)
            cut = self.cuts and target.endswith(".whl")
            self.cuts = self.cuts and not cut
            _write(target, content[:-1] if cut else content)
        return {}

    def _build(self, builds: list[dict[str, Any]]) -> Steps:
        yield "Look for the toolchain", dict
        for build in builds:
            said = yield "Start the build", lambda build=build: self._start_build(build)
            while said["left"] > 0:
                said = yield "Wait for the build", lambda build=build: self._wait_for_build(build)
            yield "Fetch the wheel", lambda build=build: self._deliver(build)
            if not self._builds_well(build):
                return "The build failed."
        return ""

    def _builds_well(self, build: Mapping[str, Any]) -> bool:
        return self.bad(f"{build['wheel_version']} build") != "fails"

    def _start_build(self, build: Mapping[str, Any]) -> Reply:
        key = build["key"]
        if key not in self.built and key not in self.builds:
            self.builds[key] = self.world.now + self.world.chance.uniform(20, 90)
            self.world.tell(f"{self.name} builds {build['wheel_version']}")
        return self._wait_for_build(build)

    def _wait_for_build(self, build: Mapping[str, Any]) -> Reply:
        key = build["key"]
        if key not in self.built and key not in self.builds:
            raise TaskFailed("The build ended without a result: the node restarted.")
        left = self.builds.get(key, 0) - self.world.now
        self.pause(0, max(0.0, min(left, 30)))
        if self.builds.get(key, 0) <= self.world.now:
            self.builds.pop(key, None)
            self.built.add(key)
            return {"left": 0}
        return {"left": 1}

    def _deliver(self, build: Mapping[str, Any]) -> Reply:
        reply = {"key": build["key"], "package": build["package"], "seconds": 1.5, "fix": ""}
        if not self._builds_well(build):
            why = {"ok": False, "reason": "The compiler failed.", "kind": "code"}
            return {"ansible_facts": {"build_wheel_result": reply | why}}
        version = build["wheel_version"]
        content = WHEELS[build["package"], version]
        claimed = hashlib.sha256(content).hexdigest()
        if self.liar == "other wheel":
            content = WHEELS["numpy", "2.0"]
        path = Path(build["dest"]) / f"{build['package']}-{version}-cp311-cp311-linux_x86_64.whl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        result = reply | {"ok": True, "file": str(path), "sha256": claimed}
        return {"ansible_facts": {"build_wheel_result": result}}

    def _tell_lies(self, state: str, reply: Reply) -> Reply:
        if said := reply.get("verification"):  # the check of replies turns advice into a sentence
            reply["verification"] = {**said, "fix": " ".join(map(str, said["fix"]))}
        if self.liar == "has all" and state == "begun":
            return {**reply, "missing": [], "complete": True}
        if self.liar == "verified" and state == "present":
            return {**reply, "active": True, "verification": {"ok": True}, "ok": True}
        if self.liar == "garbage":
            return {**reply, "active": "perhaps", "pruned": 7}
        return reply


def lease_of(node: SimulatedNode) -> dict[str, Any]:
    """Return what the lease of a node's releases says."""
    if node.lease_read != node.changes:
        try:
            node.lease = json.loads(_read(f"{node.root.path}/.lease"))
        except FileNotFoundError:
            node.lease = {}
        node.lease_read = node.changes
    return node.lease


def held_by(lease: Mapping[str, Any]) -> str:
    """Return the controller that holds this lease now, or ""."""
    holds = lease.get("boot") == _lease._boot() and lease["until"] > _uptime()
    return str(lease["controller"]) if holds else ""


WHEELS: dict[tuple[str, str], bytes] = {}  # what a build makes, by package and version


def _node() -> SimulatedNode:
    process = running().process
    assert isinstance(process, Module)
    return process.node


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


def _write(path: str, content: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(file, content)
    finally:
        os.close(file)


def _run(command: list[str], fix: object) -> str:  # noqa: ARG001
    """Stand in for the programs that make an environment and install into it."""
    node = _node()
    if "-vv" in command:  # a bare start, which looks for no module
        return ""
    if "venv" in command:
        path = command[-1]
        for folder in ("bin", "lib", SITE):
            os.mkdir(f"{path}/{folder}")
        _write(f"{path}/bin/python", b"python")
        node.pause(0.1, 1)
        return ""
    wanted = command[-1]
    path = os.path.dirname(os.path.dirname(wanted))
    for line in _read(wanted).decode().splitlines():
        file, sha256 = line.split(" --hash=sha256:")
        assert hashlib.sha256(_read(file)).hexdigest() == sha256
        node.pause(0.1, 4)
        name = os.path.basename(file).split("-")[0]
        _write(f"{path}/{SITE}/{name}.py", sha256.encode())
    return ""


def _try_release(folder: str, about: object, name: str) -> Reply:  # noqa: ARG001
    """Stand in for the release's own checks: is every wheel there, and does it run here?"""
    node = _node()
    found = json.loads(_read(f"{folder}/manifest.json"))
    versions = " ".join(wheel["version"] for wheel in found["wheels"])
    how = node.bad(f"{versions} {node.name}")
    if how == "hangs":
        node.stand_still(SILENCE * 3)
    node.pause(0.2, 5)
    for wheel in found["wheels"]:
        file = f"{folder}/{SITE}/{wheel['package']}.py"
        assert _read(file).decode() == wheel["sha256"], f"{folder} is not whole when it is verified"
    release_id = os.path.basename(folder)
    if how == "fails":
        return {"ok": False, "reason": "Illegal instruction", "fix": [], "output": "", "at": 0}
    node.passed.add(release_id)
    return {"ok": True, "reason": "", "fix": [], "output": "", "at": 0}


class _Serial:
    """Stands in for the threads that read the files of a release."""

    def __init__(self, _: int) -> None: ...

    def __enter__(self) -> _Serial:
        return self

    def __exit__(self, *_: object) -> None: ...

    map = staticmethod(map)


def _uptime() -> float:
    node = _node()
    node.readings += 1  # no clock shows the same twice
    return 100 + node.world.now - node.booted + node.readings * 1e-6


def _chance() -> Any:
    return _node().world.chance


def replace_programs() -> None:
    """Let the modules of nodes start no program and read no clock of this machine."""
    clock = SimpleNamespace(
        monotonic=_uptime, sleep=lambda seconds: _node().pause(seconds, seconds)
    )
    _lease.time = clock
    _lease.Lease.__init__.__defaults__ = (_uptime,)
    _lease.random = SimpleNamespace(SystemRandom=_chance)
    _lease._boot = lambda: f"{_node().name} {_node().boot}"
    _making.run = _run
    _verifying.try_release = _try_release
    _verifying.sanity_script = lambda *_: "#!/bin/sh\n"  # nobody runs it, or reads its source
    _verifying.release_checks = SimpleNamespace(
        __name__="", __loader__=SimpleNamespace(get_source=lambda _: "")
    )
    _installer.runs = lambda _: True
    for module in (_in_use, _switching):
        module.find_own_uses = module.find_foreign_uses = lambda _: {}
    _files.ThreadPoolExecutor = _Serial
    _files.persist = _files.persist_names = lambda _: None
    os.fsync = lambda _: None
