"""The context of an apply: `Run` (what stays the same) and `Progress` (what each stage adds).

Everything that acts outside this process comes in through `Tools`, so that the stages can be tested
without nodes, network or Ansible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from fleetbuild.ansible import RunPlaybook
from fleetbuild.apply.pending import BuildAssignment
from fleetbuild.errors import FleetbuildError
from fleetbuild.extension import Follower
from fleetbuild.journal import Journal
from fleetbuild.models import (
    Event,
    Facts,
    Inventory,
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
from fleetbuild.models.config import Hook
from fleetbuild.models.hooks import HookCall, HookFailure
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import Serving
from fleetbuild.models.stored import Signer, StoredWheel
from fleetbuild.probe.facts import Prober
from fleetbuild.state import StateDir

if TYPE_CHECKING:
    from fleetbuild.store.wheels import Store


@dataclass(frozen=True)
class Tools:
    """The functions that act outside this process: probe, playbooks, store, followers."""

    probe: Prober
    find_changes: Callable[[Plan, Mapping[str, Facts]], Sequence[str]]
    run_playbook: RunPlaybook
    wheels: Store
    audit: Callable[[Path, Plan, PlannedWheel], Sequence[str]]
    import_names_of: Callable[[Path], tuple[str, ...]]
    # Signs statements about releases and wheels, if the configuration asks for that.
    sign: Signer | None = None
    follower: Follower = field(default_factory=Follower)
    # The files that extensions write in the last stage.
    written: Callable[[Plan, Sequence[PlannedGroup], Serving], Mapping[str, str]] = lambda *_: {}
    # Groups of a plan that need a recalled wheel or file, with the reason.
    revoked: Callable[[Plan], Mapping[str, str]] = lambda _: {}
    hook: Callable[[HookCall], Mapping[str, HookFailure]] = lambda _: {}  # returns the failures
    hook_exists: Callable[[Hook], bool] = lambda _: True
    # Files that a published wheel may hold all the same, by package.
    allow_files: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass
class StageOutcome:
    """How a stage ended: the number of its failures, and the nodes that went well."""

    failures: int = 0
    nodes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Run:
    """One apply: everything that stays the same from the first stage to the last."""

    plan: Plan
    inventory: Inventory
    state: StateDir
    tools: Tools
    journal: Journal
    on_event: OnEvent
    rollback_on_failure: bool = False
    wait: bool = False  # for nodes that another controller changes
    probed: Mapping[str, Facts] | None = None  # if the plan was made of them just now
    started: str = field(default_factory=now)
    clock: float = field(default_factory=monotonic)

    def tell(self, stage: Stage, state: Any, message: str = "", **details: Any) -> None:
        """Send an event to the caller's callback."""
        self.on_event(Event(stage=stage, state=state, message=message, **details))

    @contextmanager
    def stage(self, stage: Stage, message: str = "", **details: Any) -> Iterator[StageOutcome]:
        """Report the start and the end of a stage, with its duration and number of failures."""
        start, outcome = monotonic(), StageOutcome()
        self.journal.note("stage started", stage=stage)
        self.tell(stage, "started", message, **details)
        yield outcome
        seconds = round(monotonic() - start, 3)
        group, failures = details.get("group"), outcome.failures
        self.journal.note(
            "stage ended", stage=stage, group=group, seconds=seconds, failures=failures
        )
        state = "failed" if outcome.failures else "ok"
        summary = f"{message}, {outcome.failures} failed" if outcome.failures else message
        ended = {**details, "nodes": outcome.nodes, "seconds": seconds}
        self.tell(stage, state, summary, **ended)


@dataclass(frozen=True)
class Progress:
    """How far a run has come. A node or wheel without a result is pending."""

    facts: Mapping[str, Facts] = field(default_factory=dict)
    nodes: Mapping[str, NodeResult] = field(default_factory=dict)
    assignments: tuple[BuildAssignment, ...] = ()
    failed_builders: Mapping[str, str] = field(default_factory=dict)  # node -> why
    wheels: Mapping[str, WheelResult] = field(default_factory=dict)  # by artifact key
    stored_wheels: Mapping[str, StoredWheel] = field(default_factory=dict)  # by artifact key
    files: Mapping[str, Path] = field(default_factory=dict)  # fetched, by identity
    missing: Mapping[str, FleetbuildError] = field(
        default_factory=dict
    )  # could not be fetched, by identity
    manifests: tuple[str, ...] = ()
    labels: Mapping[str, LabelResult] = field(default_factory=dict)  # by node
    changed: bool = False

    def result(self, run: Run) -> Result:
        """Return what the run did, in the plan's order."""
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
    """Return the results keyed by node name."""
    return {result.node: result for result in results}
