"""Controllers: the real stages, journal and run lock, on doors that lead to simulated nodes."""

from __future__ import annotations

import errno
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fleetbuild.ansible import HostRun, TaskEvent
from fleetbuild.apply import audit, build, fetch, wave
from fleetbuild.apply.context import Run, Tools
from fleetbuild.apply.fleet_task import run_fleet_task
from fleetbuild.apply.rollback import rollback_task
from fleetbuild.apply.stages import STAGES, StageFunction, carry_out
from fleetbuild.errors import FleetbuildError
from fleetbuild.extension import Follower
from fleetbuild.journal import Journal
from fleetbuild.models import (
    Facts,
    Inventory,
    Node,
    Plan,
    PlannedWheel,
    Result,
    event,
    now,
)
from fleetbuild.models.hooks import HookCall, HookFailure
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import Serving
from fleetbuild.probe.captures import save_section
from fleetbuild.state import StateDir
from tests.factories.role_modules import plugin
from tests.factories.runs import FakeStore, Shelved
from tests.simulation.nodes import SILENCE, Fuse, SimulatedNode, Steps, TaskFailed, release
from tests.simulation.world import (
    Ended,
    Pool,
    Process,
    Queue,
    Task,
    World,
    in_order,
)

_advice = plugin("plugin_utils.advice")
FORKS = 64
PATH = "/opt/fleetbuild"
FILES: dict[str, Path] = {}  # the files of the index, by name
STORE: list[Path] = []  # the folder with the files of all stores


@dataclass
class Cluster(Follower):
    """The labels of a cluster: which release each node is said to serve."""

    labels: dict[str, str] = field(default_factory=dict)
    refuses: bool = False

    def turn(self) -> None:
        """Refuse to change labels, or allow it again."""
        self.refuses = not self.refuses

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:  # noqa: ARG002
        return {name: self._result(name, "") for name in names}

    def after(self, served: Serving) -> dict[str, LabelResult]:
        return {name: self._result(name, made.id if made else "") for name, made in served.items()}

    def _result(self, name: str, label: str) -> LabelResult:
        if self.refuses:
            return _label_result(name, "forbidden", "no")
        before = self.labels.pop(name, "")
        if label:
            self.labels[name] = label
        return _label_result(name, "unchanged" if before == label else "labelled")


@cache
def _label_result(name: str, state: Any, reason: str | None = None) -> LabelResult:
    return LabelResult(node=name, kubernetes_node=name, state=state, reason=reason)


@dataclass(eq=False)
class _Host:
    """One host of a playbook: its steps, one after the other, over one connection."""

    controller: Controller
    node: SimulatedNode
    steps: Steps
    tell: Callable[[TaskEvent], None]
    ended: Callable[[_Host], None]
    outcome: HostRun = field(default_factory=lambda: HostRun("ok"))
    task: str = ""
    open: bool = False

    def start(self) -> None:
        self.open = True
        self.node.connections[self] = None
        self._go_on(lambda: next(self.steps))

    def _go_on(self, step: Callable[[], Any]) -> None:
        """Take the next step; the steps get replies and failures as Ansible's tasks do."""
        try:
            self.task, work = step()
        except StopIteration as end:
            if end.value:
                self.outcome = HostRun("failed", end.value, log="log")
            self._end()
            return
        except TaskFailed:
            self._end()
            return
        if self.controller.dead:
            self.open = False
            return
        node = self.node
        if node.answers:
            node.run(self.controller.rules, work, self._take)
        elif node.world.now < node.down_until:
            node.world.at(1.0, lambda: self.lose("no route to host", 0.0))
        else:
            node.run(self.controller.rules, work, self._take)
            self.lose_later()

    def _take(self, reply: Any) -> None:
        if not self.open:
            return
        if isinstance(reply, Exception):
            result = reply.result if isinstance(reply, TaskFailed) else {}
            if isinstance(reply, release.Problem):
                fix = _advice.sentence(reply.fix, {"spec": {"path": PATH}})
                result = {"fix": fix, "advice": reply.fix[0] if fix else ""}
            problem = TaskFailed(str(reply), result)
            self.tell(TaskEvent(self.node.name, self.task, "failed", result, str(reply)))
            self.outcome = HostRun("failed", str(reply), log="log")
            self._go_on(lambda: self.steps.throw(problem))
        else:
            self.tell(TaskEvent(self.node.name, self.task, "ok", reply))
            self._go_on(lambda: self.steps.send(reply))

    def lose_later(self) -> None:
        """Give the node up after a while, unless it answers before."""
        world, task = self.node.world, self.task

        def give_up() -> None:
            if self.open and self.task == task and not self.node.answers:
                self.lose("", SILENCE)

        world.at(SILENCE, give_up)

    def lose(self, why: str, silent: float) -> None:
        """End this host: the connection is lost. What runs there goes on."""
        if not self.open:
            return
        self.outcome = HostRun("unreachable", why, self.task, silent, "log")
        result = {"silent": silent}
        self.tell(TaskEvent(self.node.name, self.task, "unreachable", result, why))
        self._end()

    def _end(self) -> None:
        self.open = False
        self.node.connections.pop(self, None)
        self.ended(self)


class Store(FakeStore):
    """The wheels of a state directory, and an index that answers after a while.

    The files of the wheels lie in one folder: a wheel that passes the audit has the same content in
    all schedules, and what the engine reads in it is read once.
    """

    def __init__(self, controller: Controller) -> None:
        super().__init__(STORE[0])
        self.controller = controller

    def find(self, wheel: PlannedWheel) -> Shelved | None:
        shelved = self.shelf.get(str(wheel.artifact_key))
        return shelved if shelved and shelved.path.is_file() else None

    def fetch(self, file: Any) -> Path:
        self.controller.world.sleep(self.controller.world.chance.uniform(0.1, 3))
        if file.name in self.lost:
            raise FleetbuildError(f"{file.file} cannot be fetched.", "Look at the index.")
        return FILES[file.name]


class Controller(Process):
    """A state directory, and the run in it."""

    def __init__(self, world: World, name: str, folder: Path, nodes: Mapping[str, SimulatedNode],
                 cluster: Cluster) -> None:  # fmt: skip
        self.world, self.short, self.nodes, self.cluster = world, name, nodes, cluster
        self.state = StateDir(folder / "state")
        self.state.create()
        (folder / "state/controller").write_text("0123456789abcdef"[:7] + name[-1])
        self.store = Store(self)
        self.dead = self.stopping = self.full = False
        self.interrupted: Task | None = None
        self.fuse: Fuse | None = None
        self.kill_in = ""  # the hook during which it is killed
        self._kept: dict[str, str] = {}  # what the last probe of a node has kept
        self.drained: set[str] = set()
        self.seen: dict[str, Facts] = {}
        self.answered: set[str] = set()  # nodes, at the last probe
        self.bad_hooks: dict[tuple[str, str], str] = {}
        self.rules: Any = None  # of the run

    # How a run is disturbed

    def change(self, paths: tuple[Any, ...]) -> None:
        """See Process."""
        if self.dead:
            raise Ended
        if self.fuse and not self.fuse.tick(paths):
            self.fuse = None
            self.kill()
            raise Ended
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def check(self, task: Task) -> None:
        """See Process."""
        if self.dead:
            raise Ended
        if task is self.interrupted:
            self.interrupted = None
            raise KeyboardInterrupt
        if self.stopping and task is not self.main:
            raise KeyboardInterrupt

    def kill(self) -> None:
        """End the run at once; the journal's last line may be cut off."""
        if self.dead or self.main is None or self.main.done:
            return
        self.world.tell(f"{self.short} is killed")
        self.dead = True
        for journal in self.state.journal.glob("*.jsonl"):
            if self.world.chance.random() < 0.5:
                with journal.open("a") as file:
                    file.write('{"seq":99999,"what":"build sta\n')
        self._wake_all()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        if self.main and not self.main.done and not self.dead:
            self.world.tell(f"{self.short} is interrupted")
            self.interrupted = self.main
            self._wake_all()

    def stop(self) -> None:
        """End the jobs of other threads."""
        self.stopping = True
        self._wake_all()

    def _wake_all(self) -> None:
        for task in self.world.tasks:
            if task.process is self:
                self.world.wake(task)

    # Runs

    main: Task | None = None

    def start(self, work: Callable[[], Any], ended: Callable[[Any], None]) -> Task:
        """Start a run; `ended` gets its result, or what it raised."""
        self.dead = self.stopping = False

        def perform() -> None:
            outcome: Any
            try:
                outcome = work()
            except (FleetbuildError, OSError, KeyboardInterrupt) as problem:
                outcome = problem
            ended(outcome)

        self.main = self.world.start(perform, self)
        return self.main

    def again(self, plan: Plan) -> Result:
        """Start a run that has nothing to do, while another one runs."""
        return self.apply(plan, stages=())

    def apply(
        self,
        plan: Plan,
        *,
        rollback_on_failure: bool = False,
        stages: Sequence[StageFunction] = STAGES,
    ) -> Result:
        """Carry out a plan."""
        journal = Journal(self.state.journal / f"{plan.digest[:16]}.jsonl")
        tools = Tools(
            probe=self.probe,
            find_changes=wave_changes,
            run_playbook=self.playbook,
            wheels=self.store,
            audit=lambda path, _, wheel: _audit(path, wheel),
            import_names_of=lambda path: (path.name.split("-")[0],),
            follower=self.cluster,
            hook=self.hook,
        )
        run = Run(plan, self.inventory, self.state, tools, journal, lambda _: None,
                  rollback_on_failure)  # fmt: skip
        return carry_out(run, stages)

    def holds_lock(self) -> bool:
        """Return whether a run of this state directory is under way."""
        return self.state.lock_file.exists() and self.state.lock_file.stat().st_size > 0

    def rollback(self) -> Result:
        """Switch all nodes back."""
        return run_fleet_task(
            rollback_task(PATH, "default", self.state.controller()),
            self.inventory, release="default", expected={}, state=self.state, probe=self.probe,
            run_playbook=self.playbook, on_event=lambda _: None, follower=self.cluster,
        )  # fmt: skip

    inventory: Inventory

    # Doors

    def probe(self, nodes: Sequence[Node], _: object) -> dict[str, Facts]:
        """Read the facts of nodes, as the real probe stores them too."""
        self.world.sleep(self.world.chance.uniform(0.3, 1.5))
        found = {}
        for node in nodes:
            there = self.nodes[node.name]
            self.answered.discard(node.name)
            if not there.answers:
                found[node.name] = Facts(state="unreachable", reason="no answer within 30 s")
                continue
            self.answered.add(node.name)
            found[node.name] = self.seen[node.name] = there.facts()
            text = there.release_text
            if self._kept.get(node.name) != text or self.state.is_changing(node.name):
                self._kept[node.name] = text
                save_section(self.state.facts, node.name, "release", text)
                self.state.mark_probed(node.name, now())
        if len(found) < len(nodes) or any(facts.state != "ok" for facts in found.values()):
            self.world.sleep(30)
        return found

    def playbook(
        self, name: str, *, limit: Sequence[str], extravars: Mapping[str, Any],
        on_event: Callable[[Any], None], share: Fraction = Fraction(1),
    ) -> Any:  # fmt: skip
        """Run a playbook on simulated nodes."""
        assert 0 < share <= 1
        if self.stopping:
            raise KeyboardInterrupt
        (jobs,) = extravars.values()
        assert sorted(jobs) == sorted(limit), (name, limit)
        me, inbox, done = self.world.current(), deque[TaskEvent](), dict[str, HostRun]()
        waiting = deque(limit)

        def tell(event: TaskEvent) -> None:
            inbox.append(event)
            self.world.wake(me)

        def ended(host: _Host) -> None:
            done[host.node.name] = host.outcome
            self.rules.ended(name, {host.node.name: host.outcome})
            begin()
            self.world.wake(me)

        def begin() -> None:
            if waiting:
                node = self.nodes[waiting.popleft()]
                host = _Host(self, node, node.play(name, jobs[node.name]), tell, ended)
                hosts.append(host)
                host.start()

        hosts: list[_Host] = []
        self.world.tell(f"{self.short} {name} on {' '.join(limit)}")
        self.rules.begins(name, jobs)
        try:
            self.world.sleep(0.5)
            for _ in limit[:FORKS]:
                begin()
            while len(done) < len(limit) or inbox:
                if inbox:
                    on_event(inbox.popleft())
                else:
                    self.world.wait()
        finally:
            waiting.clear()
            for host in hosts:  # Ansible has ended: what runs on a node goes on, nothing follows
                host.open = False
                host.node.connections.pop(host, None)
        return {host: done[host] for host in limit}

    def hook(self, call: HookCall) -> Mapping[str, HookFailure]:
        """Run a hook: a node is drained before its switch, and not after it."""
        self.world.sleep(self.world.chance.uniform(0.1, 5))
        if self.kill_in == call.name:
            self.kill_in = ""
            self.kill()
            raise Ended
        failures = {
            node: HookFailure(reason=why)
            for node in call.nodes
            if (why := self.bad_hooks.get((call.name, node)))
        }
        for node in call.nodes:
            if node in failures:
                self.rules.failed(node)
            if call.name == "before":
                self.drained.add(node)
            elif node not in failures:
                self.drained.discard(node)
        return failures


def wave_changes(plan: Plan, facts: Mapping[str, Facts]) -> Sequence[str]:
    """See fleetbuild/plan/document/fingerprint.py."""
    from fleetbuild.plan.document.fingerprint import changes_since_plan  # noqa: PLC0415

    return changes_since_plan(plan, facts)


def _audit(path: Path, wheel: PlannedWheel) -> list[str]:
    """Stand in for the audit, which other tests are about."""
    ours = f"{wheel.package}-{wheel.wheel_version}.dist-info".encode() in path.read_bytes()
    return [] if ours else ["It is another wheel."]


def replace_threads(uv: Path) -> None:
    """Let the stages use the threads of the simulation."""
    for module in (build, fetch, audit):
        module.Workers = Pool  # type: ignore[attr-defined]
    build.SimpleQueue = Queue  # type: ignore[assignment,misc]
    audit.as_completed = in_order  # type: ignore[assignment]
    about = {"path": str(uv), "file": "uv", "sha256": hashlib.sha256(uv.read_bytes()).hexdigest()}
    wave.installer_for = lambda *_: about  # type: ignore[assignment]
    noon = SimpleNamespace(isoformat=lambda timespec: "2026-01-01T12:00:00.000+00:00")  # noqa: ARG005
    event.datetime = SimpleNamespace(now=lambda _: noon)  # type: ignore[assignment,misc]
