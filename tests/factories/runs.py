"""An apply of which the nodes do what the test says, without SSH, Ansible or a network."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

from fleetbuild.ansible import HostRun, TaskEvent
from fleetbuild.apply.context import Run, Tools
from fleetbuild.apply.stages import carry_out
from fleetbuild.errors import FleetbuildError
from fleetbuild.extension import Follower
from fleetbuild.journal import Journal
from fleetbuild.models import (
    Event,
    Facts,
    Inventory,
    LockedFile,
    Login,
    Manifest,
    Node,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
    Result,
)
from fleetbuild.models.hooks import HookCall, HookFailure
from fleetbuild.models.serving import Serving
from fleetbuild.models.stored import NO_CONTEXT, BuildContext, SignedRelease
from fleetbuild.state import StateDir
from tests.factories.fleets import facts, locked
from tests.factories.plans import make_group, make_plan, make_target, make_wheel

PYTHON = "/usr/bin/python3.11"


def wheel(isa: str, **changes: Any) -> PlannedWheel:
    """A wheel that ISA-1 builds, or ISA-2 where that fails."""
    values: dict[str, Any] = {
        "wheel_version": f"0.8.0+cpu.{isa}",
        "target": make_target(isa),
        "recipe": "hnswlib",
        "artifact_key": hashlib.sha256(isa.encode()).hexdigest()[:32],
        "built_on": f"{isa}-1",
        "why_there": "first by name",
        "fallbacks": (f"{isa}-2",),
        "build_pythons": {f"{isa}-1": PYTHON, f"{isa}-2": PYTHON},
        "environment": {"CFLAGS": "-O2", "CXXFLAGS": "-O2"},
        "source": locked("hnswlib"),
        "build_dependencies": (locked("setuptools"),),
        "checks": ("import hnswlib",),
        "import_names": ("hnswlib",),
    }
    return make_wheel(**{**values, **changes})


def group(isa: str, nodes: Sequence[str], **changes: Any) -> PlannedGroup:
    """A group whose first node builds."""
    made = wheel(isa)
    values = {
        "wheels": (made,),
        "fallbacks": tuple(nodes[1:]),
        "release_id": hashlib.sha256(f"release {isa}".encode()).hexdigest()[:16],
        "dependencies": (locked("numpy"),),
    }
    return make_group(nodes, made.target, **{**values, **changes})


def plan(*groups: PlannedGroup, **changes: Any) -> Plan:
    """A plan of these groups, and of these other nodes."""
    nodes = {
        name: PlannedNode(state="ok", group=each.name, python=PYTHON)
        for each in groups
        for name in each.nodes
    }
    extra = changes.pop("nodes", {})
    return make_plan(groups, **{"digest": "0" * 64, "nodes": nodes | extra, **changes})


@dataclass(frozen=True)
class Shelved:
    path: Path
    sha256: str


@dataclass
class FakeStore:
    folder: Path
    shelf: dict[str, Shelved] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  # names of files that no index has
    fetched: list[str] = field(default_factory=list)
    contexts: dict[str, BuildContext] = field(default_factory=dict)

    def find(self, wheel: PlannedWheel) -> Shelved | None:
        return self.shelf.get(str(wheel.artifact_key))

    def add(
        self,
        path: Path,
        wheel: PlannedWheel,
        *,
        built_on: str,
        seconds: float,
        context: BuildContext = NO_CONTEXT,
    ) -> Shelved:
        self.contexts[str(wheel.artifact_key)] = context
        assert built_on
        assert seconds >= 0
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        stored = Shelved(path=self.folder / path.name, sha256=sha256)
        stored.path.write_bytes(path.read_bytes())
        self.shelf[str(wheel.artifact_key)] = stored
        return stored

    def missing_bytes(self, files: Iterable[LockedFile]) -> int:
        return sum(file.size or 0 for file in files if file.name not in self.fetched)

    def fetch(self, file: LockedFile) -> Path:
        if file.name in self.lost:
            raise FleetbuildError(f"{file.file} cannot be fetched.", "Look at the index.")
        self.fetched.append(file.name)
        return self.folder / file.file


@dataclass
class FakeFleet:
    """Nodes by name. `trouble` says what goes wrong where: (playbook, node) -> what."""

    facts: dict[str, Facts]
    store: FakeStore
    trouble: dict[tuple[str, str], str] = field(default_factory=dict)
    build_failures: dict[str, dict[str, str]] = field(default_factory=dict)  # trouble -> reply
    findings: dict[str, list[str]] = field(default_factory=dict)  # by wheel version
    differences: list[str] = field(default_factory=list)
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    extravars: list[dict[str, Any]] = field(default_factory=list)
    built: dict[str, bytes] = field(default_factory=dict)  # by node: what its build makes
    during: Callable[[str], None] = lambda _: None
    later: dict[str, Facts] = field(default_factory=dict)  # facts in place of `facts`
    verified: set[str] = field(default_factory=set)  # nodes with a release that awaits its switch
    sign: Callable[[Mapping[str, Any]], SignedRelease] | None = None
    before: dict[str, Manifest | None] = field(default_factory=dict)  # what nodes served before
    follower: Follower = field(default_factory=Follower)
    answers: threading.Event = field(default_factory=threading.Event)  # of a node that "waits"
    made: Plan | None = None  # what apply() carries out
    home: Path | None = None  # the state directory of apply()
    told: list[Event] = field(default_factory=list)  # what the last apply() said

    def probe(self, nodes: Sequence[Node], _: object) -> dict[str, Facts]:
        return {node.name: self.later.get(node.name, self.facts[node.name]) for node in nodes}

    def playbook(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[Any], None],
        share: Fraction = Fraction(1),
    ) -> Any:
        assert 0 < share <= 1
        self.calls.append((name, list(limit)))
        self.extravars.append(dict(extravars))
        self.during(name)
        (jobs,) = extravars.values() or (dict.fromkeys(limit),)
        hosts = {}
        late = [host for host in jobs if self.trouble.get((name, host)) == "waits"]
        for host, job in sorted(jobs.items(), key=lambda host_job: host_job[0] in late):
            trouble = self.trouble.get((name, host), "")
            if trouble.endswith(" once"):
                del self.trouble[name, host]
            if trouble == "ctrl-c":
                raise KeyboardInterrupt
            plays = {
                "build.yml": self._build,
                "install.yml": self._install,
                "rollback.yml": self._rollback,
                "clean_up.yml": lambda _, __, trouble, ___: ended(trouble),
                "root.yml": lambda _, __, trouble, ___: ended(trouble),
            }
            play = plays[name]
            hosts[host] = play(host, job, trouble, on_event)
            if trouble == "waits":  # for a node that answers late
                on_event(event(host, "Make the release", {"seconds": 40}, "waiting"))
                assert self.answers.wait(30)
        return hosts

    def _build(self, host: str, builds: Any, trouble: str, on_event: Any) -> Any:
        if trouble == "lost":
            on_event(event(host, "Wait for the build", {"silent": 60.2}, "unreachable", "no route"))
            return ended("unreachable")
        if trouble in ("unreachable", "silent"):
            return ended(trouble)
        if trouble == "toolchain":
            on_event(event(host, "Stop", {"fix": "Install gcc."}, "failed", "gcc is missing."))
            return ended("failed")
        found = {"gcc": "12.2.0", **({} if trouble == "no cache" else {"ccache": "4.8"})}
        for _ in range(2):  # for two interpreters
            facts = {"toolchain_result": {"found": found}}
            on_event(event(host, "toolchain : Result", {"ansible_facts": facts}))
        for build in builds:
            on_event(event(host, "Wait for the build", {"progress": {"done": 1, "total": 2}}))
            on_event(event(host, "Wait for the build", {"progress": "?"}))
            reply = {"key": build["key"], "package": build["package"], "seconds": 1.5, "fix": ""}
            if trouble in ("failed", f"{build['package']} failed", *self.build_failures):
                why = {"reason": "the compiler failed", "kind": "code"}
                why = self.build_failures.get(trouble, why)
                answer(on_event, host, reply | {"ok": False} | why)
                on_event(event(host, "Stop", {}, "failed"))
                return ended("failed")
            version = build["wheel_version"]
            path = (
                Path(build["dest"]) / f"{build['package']}-{version}-cp311-cp311-linux_x86_64.whl"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.built.get(host, version.encode()))
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            if trouble == "changed":
                sha256 = "0" * 64
            if trouble == "vanished":
                path.unlink()
            answer(on_event, host, reply | {"ok": True, "file": str(path), "sha256": sha256})
        return ended("ok")

    def _install(self, host: str, job: Any, trouble: str, on_event: Any) -> Any:
        if trouble == "expired lease":
            taken = {"counter": 2, "took_over": "Took over the expired lease of a run of ann."}
            on_event(event(host, "Reserve the releases for this run", taken, "changed"))
        if trouble in ("unreachable", "silent"):
            return ended(trouble)
        task = "install_wheel : Make the release"
        if trouble in _FAILURES:
            why, fix, advice = _FAILURES[trouble]
            on_event(event(host, task, {"fix": fix, "advice": advice}, "failed", why))
            if trouble == "install, end":
                on_event(event(host, "End the reservation", {}, "failed", "The disk is full."))
            return ended("unreachable" if trouble == "install, lost" else "failed")
        reply: dict[str, Any] = {"ok": True, "active": False, "made_by": "uv"}
        if job["verify"]:
            reply["verification"] = {"ok": trouble != "verify"}
            if trouble == "verify":
                said = {"reason": "The check failed.", "output": "Traceback\nIllegal instruction"}
                reply["verification"] |= said
                on_event(event(host, task, reply | {"ok": False}, "failed", "The check failed."))
                return ended("failed")
        else:
            assert host in self.verified, "it switches to a release that nobody verified"
        if not job.get("activate", True):
            self.verified.add(host)
            on_event(event(host, task, reply, "changed"))
            return ended("ok")
        if trouble == "switch":
            on_event(event(host, task, {}, "failed", "no rename"))
            return ended("failed")
        in_use = job.get("in_use", {}).items()
        kept = [{"release_id": name, "reason": reason} for name, reason in in_use]
        on_event(event(host, task, reply | {"active": True, "kept": kept}, "changed"))
        self.before[host] = self.facts[host].release.get("default")
        manifest = Manifest.model_validate(job["manifest"] | {"verified": True})
        self.facts[host] = self.facts[host].model_copy(update={"release": {"default": manifest}})
        return ended("ok")

    def _rollback(self, host: str, job: Any, trouble: str, on_event: Any) -> Any:
        if trouble:
            on_event(event(host, "Switch to the previous release", {}, "failed", "no release"))
            return ended("failed")
        before = self.before[host]
        assert job.get("withdraw", False) == (before is None)
        reply = {"ok": True, "active": True, "release_id": before.id if before else ""}
        answer(on_event, host, reply, "install")
        release = {"default": before} if before else {}
        self.facts[host] = self.facts[host].model_copy(update={"release": release})
        return ended("ok")

    def hook(self, call: HookCall) -> dict[str, HookFailure]:
        """Note a call; `trouble` says for which nodes it fails."""
        self.calls.append((f"rollout.{call.name}", list(call.nodes)))
        troubles = {node: self.trouble.get((call.name, node)) for node in call.nodes}
        if "ctrl-c" in troubles.values():
            raise KeyboardInterrupt
        return {node: HookFailure(reason=said) for node, said in troubles.items() if said}

    def apply(self, plan: Plan | None = None, **options: Any) -> Result:
        """Carry out this plan or the fleet's own, always from the same state directory."""
        plan, self.told = plan or self.made, []
        assert plan
        assert self.home
        return carry_out(self.run(plan, self.home, self.told, **options))

    def run(self, plan: Plan, folder: Path, told: list[Event] | None = None, **options: Any) -> Run:
        state = StateDir(folder)
        nodes = [Node(name=name, login=Login(host=name)) for name in self.facts]
        return Run(
            plan=plan,
            inventory=Inventory(source="inventory.yml", nodes=tuple(nodes)),
            state=state,
            tools=Tools(
                probe=self.probe,
                find_changes=lambda _, __: self.differences,
                run_playbook=self.playbook,
                wheels=self.store,
                audit=lambda _, __, wheel: self.findings.get(wheel.wheel_version, []),
                import_names_of=lambda path: (path.name.split("-")[0],),
                follower=self.follower,
                written=_manifests,
                hook=self.hook,
                sign=self.sign,
            ),
            journal=Journal(state.journal / "plan.jsonl"),
            on_event=(told if told is not None else []).append,
            **options,
        )


def fleet_of(folder: Path, *groups: PlannedGroup) -> FakeFleet:
    """The nodes of a plan of these groups, with an empty store."""
    store, nodes = folder / "store", {n: facts(g.target.isa) for g in groups for n in g.nodes}
    store.mkdir()
    return FakeFleet(nodes, FakeStore(store), made=plan(*groups), home=folder / "state")


def states_of(result: Result) -> dict[str, str]:
    """Return the state of each node."""
    return {node.node: node.state for node in result.nodes}


def event(
    host: str, task: str, result: dict[str, Any], state: str = "ok", message: str = ""
) -> Any:
    end = HostRun("failed", message, task, log=LOG) if state == "failed" else None
    return TaskEvent(host, task, cast(Any, state), result, message, end)


def answer(
    on_event: Callable[[Any], None], host: str, reply: dict[str, Any], of: str = "build"
) -> None:
    facts = {"ansible_facts": {f"{of}_wheel_result": reply}}
    on_event(event(host, "Result", {"active": True} | reply if of == "install" else facts))


_HELD = "A run of ann is changing these.", "Wait for that run.", "wait-for-run"
_FULL = "The disk is full.", "Make room.", ""
_FAILURES = {
    **dict.fromkeys(("held", "held once"), _HELD),
    **dict.fromkeys(("install", "install, end", "install, lost"), _FULL),
}
LOG = "runs/1-install.log"  # what Ansible printed


def ended(trouble: str) -> HostRun:
    states: dict[str, Literal["failed", "unreachable"]] = {
        "silent": "failed",
        "unreachable": "unreachable",
        "failed": "failed",
    }
    return HostRun(
        state=states.get(trouble, "ok"),
        message="no route" if trouble == "unreachable" else "",
        task="install_wheel : Make the release",
        silent=60.2 if trouble == "unreachable" else 0,
        log=LOG,
    )


def _manifests(_: Plan, groups: Sequence[PlannedGroup], serving: Serving) -> dict[str, str]:
    return {
        f"{each.name}.yml": " ".join(sorted(filter(serving.get, each.nodes))) for each in groups
    }
