"""What the stages of an apply share: the run that they are part of, and how far it has come.

Everything that reaches beyond this process comes in as a tool, so that the stages can be tested
without nodes, network or Ansible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from fleetbuild.ansible.fleet_playbooks import Playbooks
from fleetbuild.apply.pending import BuildAssignment
from fleetbuild.errors import FleetbuildError
from fleetbuild.kubernetes import Serving
from fleetbuild.labelling.labeller import Labeller, ManualLabels
from fleetbuild.models import (
    Event,
    Facts,
    Inventory,
    LockedFile,
    NodeResult,
    OnEvent,
    Plan,
    PlannedGroup,
    PlannedWheel,
    Result,
    Stage,
    WheelResult,
    now,
)
from fleetbuild.models.result import LabelResult
from fleetbuild.planner.facts import Prober
from fleetbuild.state.directory import StateDir
from fleetbuild.state.journal import Journal


class StoredFile(Protocol):
    """A wheel in the store."""

    @property
    def path(self) -> Path: ...

    @property
    def sha256(self) -> str: ...


class Wheels(Protocol):
    """The store, as far as an apply needs it."""

    def find(self, wheel: PlannedWheel) -> StoredFile | None:
        """A stored wheel that serves this target."""
        ...

    def add(self, path: Path, wheel: PlannedWheel, *, built_on: str, seconds: float) -> StoredFile:
        """Take in a checked wheel."""
        ...

    def fetch(self, file: LockedFile, heed: Callable[[], None]) -> Path:
        """The path of a locked file; from the index, once. What `heed` raises stops it."""
        ...


@dataclass(frozen=True)
class Tools:
    """The ways out of this process."""

    probe: Prober
    differences: Callable[[Plan, Mapping[str, Facts]], Sequence[str]]
    playbook: Playbooks
    wheels: Wheels
    findings: Callable[[Path, Plan, PlannedWheel], Sequence[str]]
    imports: Callable[[Path], tuple[str, ...]]
    manifests: Callable[[Plan, Sequence[PlannedGroup], Serving], Mapping[str, str]]
    labels: Labeller = field(default_factory=ManualLabels)
    stop: Callable[[], None] = lambda: None  # ends the playbooks that run in other threads


@dataclass
class StageOutcome:
    """What a stage has to say of itself when it ends."""

    failures: int = 0


@dataclass(frozen=True)
class Run:
    """One apply: what stays the same from its first stage to its last."""

    plan: Plan
    inventory: Inventory
    state: StateDir
    tools: Tools
    journal: Journal
    on_event: OnEvent
    started: str = field(default_factory=now)
    clock: float = field(default_factory=monotonic)

    def tell(self, stage: Stage, state: Any, message: str = "", **details: Any) -> None:
        """Send an event to whoever listens."""
        self.on_event(Event(stage=stage, state=state, message=message, **details))

    @contextmanager
    def stage(self, stage: Stage, message: str = "", **details: Any) -> Iterator[StageOutcome]:
        """Tell that a stage starts, how it ended and how long it took; who raises tells more."""
        began, ending = monotonic(), StageOutcome()
        self.journal.note("stage started", stage=stage)
        self.tell(stage, "started", message, **details)
        yield ending
        self.journal.note("stage ended", stage=stage)
        state = "failed" if ending.failures else "ok"
        told = f"{message}, {ending.failures} failed" if ending.failures else message
        self.tell(stage, state, told, seconds=round(monotonic() - began, 3), **details)


@dataclass(frozen=True)
class Progress:
    """How far a run has come. A node or wheel without a result is still to be done."""

    facts: Mapping[str, Facts] = field(default_factory=dict)
    nodes: Mapping[str, NodeResult] = field(default_factory=dict)
    orders: tuple[BuildAssignment, ...] = ()
    wheels: Mapping[str, WheelResult] = field(default_factory=dict)  # by artifact key
    stored_wheels: Mapping[str, StoredFile] = field(default_factory=dict)  # by artifact key
    files: Mapping[str, Path] = field(default_factory=dict)  # fetched, by identity
    missing: Mapping[str, FleetbuildError] = field(default_factory=dict)  # those not to be had
    manifests: tuple[str, ...] = ()
    labels: Mapping[str, LabelResult] = field(default_factory=dict)  # by node
    changed: bool = False

    def result(self, run: Run) -> Result:
        """What the run did, in the plan's order."""
        return Result(
            plan_digest=run.plan.digest,
            wheels=tuple(self.wheels.values()),
            nodes=tuple(self.nodes[name] for name in run.plan.nodes if name in self.nodes),
            manifests=self.manifests,
            labels=tuple(self.labels[name] for name in run.plan.nodes if name in self.labels),
            changed=self.changed,
            seconds=round(monotonic() - run.clock, 3),
        )


def results_by_node(results: Iterable[NodeResult]) -> dict[str, NodeResult]:
    """Results by the name of their node."""
    return {result.node: result for result in results}
