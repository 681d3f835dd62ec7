"""Schedules: a seed decides the fleet, the runs of two controllers, and what goes wrong."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from fleetbuild.apply import rollout
from fleetbuild.errors import FleetbuildError, LockedError
from fleetbuild.extensions.kubernetes import config as kubernetes
from fleetbuild.models import Config, Facts, LockedFile, Plan, Result
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.resolution import Resolution, Source
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.recipes import render
from tests.factories.files import make_wheel
from tests.factories.fleets import answers, drafted, facts, inventory, locked, package
from tests.simulation import controllers, nodes
from tests.simulation.controllers import Cluster, Controller
from tests.simulation.nodes import WHEELS, Fuse, SimulatedNode
from tests.simulation.rules import NodeRules, RunRules
from tests.simulation.world import World, watch_files

RUNGS = ("avx", "avx2", "avx512")
VERSIONS = ("0.7.0", "0.8.0", "0.9.0", "1.0.0")  # the last one comes at the end, and is good
# Nodes of a fleet, and of a larger one, which finds less in the same time; see docs/benchmarks.md.
SIZES = ((1, 2, 2, 3), (1, 2, 2, 3, 3, 4, 5, 6))
DAYS = 3 * 86400.0
_T = TypeVar("_T")
MEMORY = Path("/dev/shm")  # where a flush takes no time
_SHARED: list[Path] = []


def _without_times(path: Path) -> Path:
    """Write a wheel again, so that it has the same hash each time it is made."""
    with zipfile.ZipFile(path) as made:
        members = {name: made.read(name) for name in made.namelist()}
    with zipfile.ZipFile(path, "w") as again:
        for name, content in members.items():
            again.writestr(zipfile.ZipInfo(name), content)
    return path


def prepare() -> Path:
    """Make what all schedules share, and put the doors into the engine: once for a process."""
    if _SHARED:
        return _SHARED[0]
    folder = Path(
        tempfile.mkdtemp(prefix="fleetbuild-simulation-", dir=MEMORY if MEMORY.is_dir() else None)
    )
    _SHARED.append(folder)
    for name, version in (("numpy", "2.0"), ("setuptools", "80")):
        controllers.FILES[name] = path = _without_times(make_wheel(folder, name, version))
        WHEELS[name, version] = path.read_bytes()
    controllers.FILES["hnswlib"] = folder / "hnswlib.tar.gz"
    controllers.FILES["hnswlib"].write_bytes(b"source")
    for version in VERSIONS:
        for rung in RUNGS:
            full = f"{version}+cpu.{rung}"
            made = make_wheel(folder, "hnswlib", full, "cp311-cp311-linux_x86_64",
                              files={f"hnswlib/{rung}.py": b""})  # fmt: skip
            WHEELS["hnswlib", full] = _without_times(made).read_bytes()
    (folder / "uv").write_bytes(b"uv")
    controllers.STORE.append(folder / "store")
    controllers.STORE[0].mkdir()
    nodes.replace_programs()
    controllers.replace_threads(folder / "uv")
    watch_files()
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(500_000)  # a third of the time otherwise
    render._render_all = _rendered_once(render._render_all, dict)
    render._render_each = _rendered_once(render._render_each, list)
    kubernetes.kubernetes_node = _named_once(kubernetes.kubernetes_node)
    rollout.owners = _checked_once(rollout.owners)
    document = import_module("fleetbuild.plan.document.make_plan")
    document.plan_wheel = _planned_once(document.plan_wheel)  # type: ignore[attr-defined]
    return folder


def _rendered_once(render: Callable[..., _T], copy: Callable[[_T], _T]) -> Callable[..., _T]:
    """Render the same fields of a recipe once for a process: all schedules build a few wheels."""
    known: dict[tuple[str, ...], _T] = {}

    def rendered(recipe: Any, field: str, texts: Any, given: Any, *names: Any) -> _T:
        if not texts:
            return render(recipe, field, texts, given)
        key = recipe.name, field, given.model_dump_json(), *texts
        if key not in known:
            known[key] = render(recipe, field, texts, given, *names)
        return copy(known[key])

    return rendered


def _named_once(name: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    """Name the same node once for a process; here no node has variables."""
    known: dict[tuple[str, str], str] = {}

    def named(node: Any, template: str) -> str:
        key = node.name, template
        if key not in known:
            known[key] = name(node, template)
        return known[key]

    return named


def _checked_once(owners: Callable[..., Any]) -> Callable[..., Any]:
    """Compare the same wheels once for a process: all schedules build the same ones."""
    known: dict[tuple[Path, ...], Any] = {}

    def checked(paths: Sequence[Path], allowed: Any) -> Any:
        key = tuple(paths)
        if key not in known:
            known[key] = owners(paths, allowed)
        return known[key]

    return checked


def _planned_once(plan_wheel: Callable[..., Any]) -> Callable[..., Any]:
    """Plan the same wheel of a draft once: what it depends on is a part of that draft's key."""
    known: dict[Any, Any] = {}

    def planned(wheel: Any, *given: Any, blocked: Any, against: Any, **more: Any) -> Any:
        key = id(wheel), blocked, *map(id, against)
        if key not in known:  # the wheel stays there, too, so that its id stays its own
            made = plan_wheel(wheel, *given, blocked=blocked, against=against, **more)
            known[key] = wheel, made
        return known[key][1]

    return planned


def _remove(folder: str) -> None:
    """Remove a folder in which nobody else works: shutil.rmtree makes twice as many calls."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108
    os.rmdir(folder)  # noqa: PTH106


@cache
def _file(name: str, version: str) -> LockedFile:
    path = controllers.FILES[name]
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    about = {"name": name, "version": version, "file": path.name, "sha256": sha256}
    return locked(name, version).model_copy(update=about)


@cache
def _facts(rung: str, libc: str, memory_gb: float) -> Facts:
    return facts(rung, libc, memory_gb=memory_gb)


@cache
def _package(version: str) -> Package:
    return package("hnswlib", version)


@cache
def _resolution(name: str, version: str) -> Resolution:
    return Resolution(wheels=(_file(name, version),))


_DRAFTS: dict[Any, Any] = {}  # and their locks, of equal fleets


class Schedule:
    """One world: a fleet, two controllers, runs and faults."""

    def __init__(self, seed: int, size: int = 0, *, larger: bool = False) -> None:
        self.shared = prepare()
        self.folder = Path(tempfile.mkdtemp(dir=self.shared))
        os.chdir(self.folder)
        self.world = world = World(seed)
        self.chance = chance = world.chance
        self.cluster = Cluster()
        self.rules = NodeRules(self.cluster.labels)
        self.bad: dict[str, str] = {}
        self.nodes: dict[str, SimulatedNode] = {}
        count = size or chance.choice(SIZES[larger])
        rungs = chance.sample(RUNGS, chance.randint(1, 3))
        for number in range(count):
            name = f"n{number:02}"
            folder = Path(name)
            folder.mkdir()
            about = self._hardware(chance, rungs)
            node = SimulatedNode(world, name, folder, about, self._how_bad, watch=self.rules.look,
                                 whole=self.rules.whole)  # fmt: skip
            self.nodes[name] = node
        self.config = self._config(chance, size)
        self.controllers = []
        for name in ("one", "two"):
            Path(name).mkdir()
            made = Controller(world, name, Path(name), self.nodes, self.cluster)
            made.inventory = inventory(self.nodes)
            self.controllers.append(made)
        self.running: dict[Controller, int] = {}

    def _hardware(self, chance: random.Random, rungs: Sequence[str]) -> Facts:
        libc = chance.choice(("2.31", "2.36"))
        return _facts(chance.choice(rungs), libc, chance.choice((8.0, 16.0)))

    def _config(self, chance: random.Random, size: int) -> Config:
        serials: list[Any] = [1, 2, "25%", "50%", "100%", [1, 3, "50%"]]
        rollout = {
            "canary": chance.choice((0, 1, 1, 2)),
            "serial": "25%" if size else chance.choice(serials),
            "max_fail": chance.choice((0, 1, "10%", "40%")),
            "max_unreachable": chance.choice((0, 1, "25%")),
        }
        if chance.random() < 0.25:
            rollout |= {"before": {"playbook": "drain"}, "after": {"playbook": "undrain"}}
        return Config.model_validate({"rollout": rollout})

    def _how_bad(self, what: str) -> str:
        return next(
            (how for name, how in self.bad.items() if set(name.split()) <= set(what.split())), ""
        )

    # The runs

    def plan(self, controller: Controller, version: str) -> Plan:
        """Probe and plan, with the real planner; an index answers the same each time."""
        known = controller.probe(controller.inventory.nodes, None)
        source = Source(package="hnswlib", version=version, file=_file("hnswlib", version),
                        build_requirements=("setuptools",))  # fmt: skip
        # Of what drafts and locks are made of, nodes differ in this alone.
        kinds = [
            (name, each.state, each.isa, each.libc, each.memory_gb, each.disk_gb)
            for name, each in known.items()
        ]
        key = version, *kinds
        if key not in _DRAFTS:  # made once for a process
            made = drafted(known, (_package(version),), config=self.config)
            _DRAFTS[key] = made, answers(
                made, known, sources=(source,), closure=_resolution("numpy", "2.0"),
                build=_resolution("setuptools", "80"),
            )  # fmt: skip
        made, locks = _DRAFTS[key]
        return make_plan(
            controller.inventory, known, (_package(version),), self.config, drafted=made,
            locks=locks, store={}, created="2026-01-01T00:00:00+00:00",
        )  # fmt: skip

    def start(self, controller: Controller, action: str, ended: Callable[[Any], None]) -> None:
        """Start a run of a controller."""
        rules = RunRules(controller, self.rules)

        def work() -> Any:
            if action == "rollback":
                return controller.rollback()
            plan = rules.plan = self.plan(controller, action)
            if not plan.groups:
                return None
            return controller.apply(plan, rollback_on_failure=self.chance.random() < 0.2)

        def end(outcome: Any) -> None:
            said = (
                outcome
                if not isinstance(outcome, Result)
                else f"exit {outcome.exit_code} "
                + " ".join(f"{each.node}={each.state}" for each in outcome.nodes)
            )
            place = str(self.folder)  # has another name each time that a seed is played
            self.world.tell(f"{controller.short} {action}: {str(said).replace(place, '')}")
            if isinstance(outcome, Result):
                rules.result(outcome)
            ended(outcome)

        controller.rules = rules
        controller.start(work, end)

    def run(self, controller: Controller, action: str) -> Any:
        """Run to the end; None if the controller was killed."""
        outcomes: list[Any] = []
        self.start(controller, action, outcomes.append)
        assert controller.main
        self.world.join([controller.main])
        return outcomes[0] if outcomes else None

    # What goes wrong

    def disturb(self) -> None:
        """Let something go wrong at some time."""
        chance, node = self.chance, self.chance.choice([*self.nodes.values()])
        controller = chance.choice(self.controllers)
        wheel = f"{chance.choice(VERSIONS[:-1])}+cpu.{chance.choice(RUNGS)}"
        how, hook = chance.choice(("fails", "hangs")), chance.choice(("before", "after"))
        lie = chance.choice(("has all", "verified", "garbage", "other wheel"))
        file, seconds = chance.choice(("numpy", "setuptools")), chance.choice((20, 100, 4000))
        changes, steps = chance.randint(1, 60), chance.randint(1, 3)
        held = chance.choice((100, 2500))  # the second: longer than a lease
        hooks = 3 if self.config.rollout.before else 0
        full = Fuse(changes, restarts=False)
        if steps == 1:  # else it seldom strikes just before or after a switch
            full = Fuse(1 + changes % 2, "history", restarts=False)
        faults: dict[str, tuple[int, Callable[[], Any]]] = {  # how often, and what
            "restart": (1, node.restart),
            "restart within": (2, lambda: node.arm(Fuse(changes))),
            "restart within a switch": (2, lambda: node.arm(Fuse(steps, "current"))),
            "fill up within": (1, lambda: node.arm(full)),
            "fill up": (1, node.fill_up),
            "stand still": (1, lambda: node.stand_still(seconds)),
            "hold up": (2, lambda: setattr(node, "hold", held)),
            "damage": (1, lambda: self._damage(node)),
            "lie": (1, lambda: node.lie(lie)),
            "kill": (1, controller.kill),
            "kill within": (1, lambda: setattr(controller, "fuse", Fuse(changes))),
            "kill within a hook": (hooks, lambda: setattr(controller, "kill_in", hook)),
            "interrupt": (1, controller.interrupt),
            "fill controller": (1, lambda: self._fill(controller)),
            "bad release": (1, lambda: self.bad.update({wheel: how})),
            "bad on a node": (1, lambda: self.bad.update({f"{wheel} {node.name}": how})),
            "bad build": (1, lambda: self.bad.update({f"{wheel} build": "fails"})),
            "lost file": (1, lambda: controller.store.lost.add(file)),
            "bad hook": (1, lambda: controller.bad_hooks.update({(hook, node.name): "no"})),
            "labels refused": (1, self.cluster.turn),
            "second run": (1, lambda: self._second_run(controller)),
        }
        (name,) = chance.choices([*faults], [often for often, _ in faults.values()])

        def strike() -> None:
            self.world.tell(f"fault: {name} ({node.name} or {controller.short})")
            faults[name][1]()

        # What strikes after a number of changes waits for them from the beginning.
        self.world.at(0 if "within" in name else chance.uniform(0, 160), strike)

    def _fill(self, full: Controller) -> None:
        full.full = True
        self.world.at(self.chance.uniform(5, 300), lambda: setattr(full, "full", False))

    def _damage(self, node: SimulatedNode) -> None:
        self.rules.hurt(node)
        node.damage()

    def _second_run(self, controller: Controller) -> None:
        """Start another run in the state directory of one that runs: it is refused."""
        if controller.main is None or controller.main.done or not controller.holds_lock():
            return

        def refused() -> None:
            try:
                controller.again(self.plan(controller, VERSIONS[0]))
            except (LockedError, KeyboardInterrupt):  # a Ctrl-C of the first run ends it, too
                return
            except (OSError, FleetbuildError):
                if controller.full:
                    return
                raise
            assert controller.dead or not controller.holds_lock(), "two runs in one state directory"

        self.world.start(refused, controller)

    def play(self) -> None:
        """Play the schedule, and then a last apply, which must succeed."""
        try:
            self._play()
        finally:
            self.world.stop()
            os.chdir(self.shared)
            _remove(str(self.folder))

    def _play(self) -> None:
        chance, world, versions = self.chance, self.world, []
        if chance.random() < 0.3:  # some fleets serve something before
            self._expect(self.controllers[0], VERSIONS[0])
        for _ in range(chance.choice((1, 1, 2))):
            for _ in range(chance.choice((1, 2, 3, 4)) + len(self.nodes) // 40):
                self.disturb()
            runs = []
            chosen = chance.sample(self.controllers, chance.choice((1, 1, 2)))
            modules = chain.from_iterable(node.modules for node in self.nodes.values())
            left = {module.run.controller for module in modules}  # by a run that was killed
            self.rules.controllers_at_once = len({*chosen, *left})
            for controller in chosen:
                action = chance.choice((*VERSIONS[:-1], "rollback"))
                versions += [action] if action != "rollback" else []
                self.start(controller, action, lambda _: None)
                runs.append(controller.main)
                gap = chance.choice((0, chance.uniform(0, 200), 2000))
                if gap == 2000 and len(chosen) > 1 and chance.random() < 0.5:
                    chance.choice([*self.nodes.values()]).hold = 2500  # longer than its lease
                world.sleep(gap)
            world.join(runs)
            world.sleep(chance.choice((1, 60, 2000)))
        self._heal()
        self.rules.controllers_at_once = 1
        version = chance.choice((VERSIONS[-1], *versions))
        for controller in self.controllers:
            if controller.main:
                self._expect(controller, version)
        for node in self.nodes.values():
            self._check_end(node, version)

    def _heal(self) -> None:
        self.world.sleep(DAYS)
        self.bad.clear()
        self.cluster.refuses = False
        for controller in self.controllers:
            controller.full, controller.fuse, controller.kill_in = False, None, ""
            controller.store.lost.clear()
            controller.bad_hooks.clear()
        for node in self.nodes.values():
            node.hold = 0.0
            node.full, node.cuts, node.liar, node.fuse = False, False, "", None
            node.still_until = node.down_until = 0.0
            self.rules.healed(node)

    def _expect(self, controller: Controller, version: str) -> None:
        outcome = self.run(controller, version)
        if isinstance(outcome, FleetbuildError | OSError):
            raise AssertionError(f"With nothing wrong, an apply ended with: {outcome}") from outcome
        assert isinstance(outcome, Result), "the last apply was killed"
        assert outcome.exit_code == 0, [each for each in outcome.nodes if each.reason]

    def _check_end(self, node: SimulatedNode, version: str) -> None:
        self.rules.whole(node)
        serving = node.root.serving()
        found = node.root.manifest(serving)
        assert found, f"{node.name} serves nothing"
        assert found["wheels"][0]["version"].startswith(version), f"{node.name}: {found}"
        assert found["verified"], f"{node.name} serves what nobody verified"
        assert not node.root.damage(serving, True, found), f"{node.name} serves a damaged release"
        assert self.cluster.labels.get(node.name) == serving, f"{node.name}: its label is wrong"
        staged = [path.name for path in node.staging.glob("*/*")]
        assert not staged, f"{node.name}: copied wheels remain: {staged}"
        owners = {path.name.partition(".")[2] for path in node.kept_wheels()}
        gone = {name for name in owners if not Path(node.root[name]).exists()}
        assert not gone, f"{node.name}: wheels of releases that are gone remain: {gone}"
        holder = nodes.lease_of(node).get("controller")
        assert node.lied or not holder, f"{node.name}: the lease of {holder} remains"
        for controller in self.controllers:
            assert node.name not in controller.drained, f"{node.name} is still drained"
            assert not controller.state.is_reserved(node.name), f"{node.name} is marked as reserved"
