"""Third stage, build: build the assigned wheels on all builders at once, in one Ansible run.

In: build assignments and fetched files. Out: a result for each wheel; built wheels lie in the
incoming folder until the audit. If a machine fails, the next fallback of the plan builds at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from queue import SimpleQueue
from typing import Any

from fleetbuild.ansible import HostRun, TaskEvent
from fleetbuild.ansible.role_results import BuildReply, Failure, is_disk_full, reply_in
from fleetbuild.ansible.silent_nodes import AGAIN, tell_waiting
from fleetbuild.apply.build_events import (
    incoming,
    lacks_cache,
    log_of,
    report_abandoned,
    report_end,
    report_failure,
    report_missing_cache,
    report_new_builder,
    report_other_groups,
    report_progress,
    report_start,
    report_waiting_groups,
)
from fleetbuild.apply.build_failures import (
    explain_reply,
    failure_before_reply,
    machine_failure,
    reason_without_reply,
)
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.pending import (
    BuildAssignment,
    NoBuilder,
    build_spec,
    choose_builder,
    key_of,
    results_of_failed_wheels,
    source_of,
    wheel_identity,
)
from fleetbuild.errors import FleetbuildError
from fleetbuild.files import raise_if_folder_is_full, sha256_of
from fleetbuild.models import LockedFile, NodeResult, WheelResult, ignore
from fleetbuild.models.build_parameters import BuildSpec, Requirement
from fleetbuild.models.result import FailedBuild
from fleetbuild.text import count
from fleetbuild.workers import Workers

_AT_ONCE = 8  # each has an ansible-playbook of its own, which takes 100 MB


def build(run: Run, progress: Progress) -> Progress:
    """Build each assigned wheel, or record why it failed. A failure stops no other build."""
    if not progress.assignments:
        return progress
    builds = _Builds(run, progress)
    with run.stage("build", count(len(progress.assignments), "wheel")) as outcome:
        built = builds.work()
        outcome.failures = sum(wheel.state == "failed" for wheel in built.values())
    assignments = tuple(builds.assignments.values())
    wheels, failed = {**progress.wheels, **built}, builds.failed
    progress = replace(progress, assignments=assignments, wheels=wheels, failed_builders=failed)
    report_other_groups(run, progress, built)
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return _look_again(run, replace(progress, nodes=nodes, changed=True))


def _look_again(run: Run, progress: Progress) -> Progress:
    """Probe the builders that failed; one that does not answer gets no release in this run."""
    groups = run.plan.groups_by_node
    names = [
        name for name in progress.failed_builders if name in groups and name not in progress.nodes
    ]
    facts = run.tools.probe([run.inventory[name] for name in names], ignore) if names else {}
    lost = {
        name: NodeResult(
            node=name,
            group=groups[name].name,
            state="unreachable",
            reason=f"{progress.failed_builders[name]} It does not answer now: "
            f"{facts_now.reason or facts_now.state}",
            fix=facts_now.fix or AGAIN,
        )
        for name, facts_now in facts.items()
        if facts_now.state != "ok"
    }
    for name, result in lost.items():
        about = {"node": name, "group": result.group, "fix": result.fix or ""}
        run.tell("build", "unreachable", result.reason or "", **about)
    return replace(progress, facts={**progress.facts, **facts}, nodes={**progress.nodes, **lost})


@dataclass(eq=False)
class _Batch:
    """The builds of one run of the playbook; a node builds its wheels in the plan's order."""

    assignments: tuple[BuildAssignment, ...]
    # node -> artifact key -> a build without a reply
    waiting: dict[str, dict[str, BuildAssignment]] = field(default_factory=dict)
    replies: dict[str, BuildReply] = field(default_factory=dict)  # by artifact key
    failures: dict[str, Failure] = field(default_factory=dict)  # by node
    # by node: the first package that failed there
    first_failures: dict[str, tuple[str, BuildReply]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for assignment in self.assignments:
            self.waiting.setdefault(assignment.node, {})[key_of(assignment.wheel)] = assignment


# What a worker reports: an event, how its playbook ended on each host, or what stopped it.
_Report = TaskEvent | Mapping[str, HostRun] | BaseException


class _Builds:
    """The builds of a stage: a queue of assignments, and workers that run the playbook for them.

    Workers only report: this thread takes each event in turn, and alone decides what it means. A
    node builds for one batch at a time, because jobs are sized for the whole node, and a node that
    failed builds nothing more.
    """

    def __init__(self, run: Run, progress: Progress) -> None:
        self._run, self._progress = run, progress
        self.failed = dict(progress.failed_builders)  # node -> why
        # By artifact key, as they are now.
        self.assignments = {key_of(build.wheel): build for build in progress.assignments}
        self._failed_on: dict[str, tuple[FailedBuild, ...]] = {}  # by artifact key
        self._results: dict[str, WheelResult] = {}  # by artifact key
        self._queue: list[BuildAssignment] = []
        self._builders: dict[str, _Batch] = {}  # the nodes that build now
        self._running = 0
        self._nodes = len({build.node for build in progress.assignments})
        self._events: SimpleQueue[tuple[_Batch, _Report]] = SimpleQueue()
        self._abandoned = _abandoned_builds(run)
        self._without_cache: set[str] = set()  # nodes that were reported to lack build.cache

    def work(self) -> dict[str, WheelResult]:
        """Build everything; return the results by artifact key."""
        for assignment in self._progress.assignments:
            if why := self.failed.get(assignment.node):
                self._move(assignment, why)
        self._queue += self.assignments.values()
        with Workers(_AT_ONCE, grace=15) as pool:  # Ansible may take ten to end
            self._start(pool)
            while self._running:
                self._take(*self._events.get())
                self._start(pool)
        return {
            key: self._results[key].model_copy(update={"failed_on": self._failed_on.get(key, ())})
            for key in self.assignments
        }

    def _start(self, pool: Workers) -> None:
        """Start the queued builds whose nodes are free; builds of failed nodes move on first."""
        for assignment in self._queue:
            if why := self.failed.get(assignment.node):
                self._move(assignment, why)
        self._queue = [self.assignments[key_of(build.wheel)] for build in self._queue]
        ready = tuple(build for build in self._queue if build.node not in self._builders)
        if not ready:
            return
        self._queue = [build for build in self._queue if build.node in self._builders]
        batch = _Batch(ready)
        self._builders |= dict.fromkeys(batch.waiting, batch)
        self._running += 1
        progress = replace(self._progress, assignments=ready)
        for assignment in ready:
            key, node = key_of(assignment.wheel), assignment.node
            self._run.journal.note("build started", key=key, node=node)
        report_waiting_groups(self._run, progress)
        for node, builds in batch.waiting.items():
            first = next(iter(builds.values()))
            if node in self._abandoned:
                report_abandoned(self._run, first)
            report_start(self._run, first)
        pool.submit(self._play, batch, progress, sorted(batch.waiting))

    def _play(self, batch: _Batch, progress: Progress, nodes: list[str]) -> None:
        """Run the playbook in a worker; all that it says goes into the queue of events."""
        try:
            hosts = self._run.tools.run_playbook(
                "build.yml",
                limit=nodes,
                extravars={
                    "fleetbuild_builds": build_extravars(self._run, progress, self._abandoned)
                },
                on_event=lambda event: self._events.put((batch, event)),
                share=min(Fraction(1), Fraction(len(nodes), self._nodes)),
            )
            self._events.put((batch, hosts))
        except FleetbuildError as problem:  # this batch could not start: the others go on
            failed = HostRun("failed", f"{problem.message} {problem.fix}".strip())
            self._events.put((batch, dict.fromkeys(nodes, failed)))
        except BaseException as problem:
            self._events.put((batch, problem))

    def _take(self, batch: _Batch, report: _Report) -> None:
        if isinstance(report, BaseException):
            raise report
        if isinstance(report, TaskEvent):
            self._take_event(batch, report)
        else:
            self._end(batch, report)

    def _take_event(self, batch: _Batch, event: TaskEvent) -> None:
        """Turn an event of Ansible into one of fleetbuild, and keep the replies of builds."""
        waiting, reply = batch.waiting.get(event.host, {}), reply_in(event)
        current = next(iter(waiting.values()), None)
        if event.state == "waiting":
            tell_waiting(self._run.on_event, event, current.group if current else None, "build")
        elif event.state == "unreachable":
            lost = HostRun("unreachable", event.message, event.task, event.result.get("silent", 0))
            self._give_away(waiting, failure_before_reply(lost, None))
        elif isinstance(reply, Failure):
            batch.failures[event.host] = reply
        elif isinstance(reply, BuildReply):
            # Accept one reply per build, and only for builds assigned to this node.
            if assignment := waiting.pop(reply.key, None):
                self._keep(batch, assignment, reply)
        elif current and lacks_cache(self._run, event):
            if event.host not in self._without_cache:
                report_missing_cache(self._run, current)
            self._without_cache.add(event.host)
        elif current:
            report_progress(self._run, current, event)

    def _keep(self, batch: _Batch, assignment: BuildAssignment, reply: BuildReply) -> None:
        """Keep a reply. If the machine failed, other nodes build this wheel and the next ones."""
        run, node, waiting = self._run, assignment.node, batch.waiting[assignment.node]
        run.journal.note("build ended", key=reply.key, node=node, built=reply.ok)
        for key in self._abandoned.pop(node, ()):
            run.journal.note("build ended", key=key, node=node)
        log = incoming(run, assignment) / "build.log"
        explained = batch.replies[reply.key] = explain_reply(assignment, reply, log)
        why = None
        if not reply.ok:
            batch.first_failures.setdefault(node, (assignment.wheel.package, explained))
            why = machine_failure(reply, log)
        moved = self._fail_over(assignment, why)
        self._give_away(waiting, why)
        if not moved:
            report_end(run, assignment, explained)
        if waiting and reply.ok:
            report_start(run, next(iter(waiting.values())))
        else:
            self._release(batch, node)

    def _give_away(self, waiting: dict[str, BuildAssignment], why: str | None) -> None:
        """Have other nodes build the wheels that wait for a machine that failed."""
        for key, assignment in tuple(waiting.items()):
            if self._fail_over(assignment, why):
                del waiting[key]

    def _end(self, batch: _Batch, hosts: Mapping[str, HostRun]) -> None:
        """Note the results of a batch, but for wheels that other nodes have taken over."""
        if any(is_disk_full(failure.reason) for failure in batch.failures.values()):
            # A wheel that does not fit on this machine fails the task that fetches it from its
            # node.
            raise_if_folder_is_full(self._run.state.root)
        for assignment in batch.assignments:
            key, node = key_of(assignment.wheel), assignment.node
            if self.assignments[key] is not assignment:
                continue
            began = key in batch.replies or node in batch.first_failures
            failure = failure_before_reply(hosts.get(node), batch.failures.get(node))
            if not self._fail_over(assignment, None if began else failure):
                log = log_of(self._run, assignment)
                self._results[key] = _result(assignment, batch, hosts.get(node), log)
                if key not in batch.replies:
                    report_failure(self._run, assignment, self._results[key])
        for node in batch.waiting:
            self._release(batch, node)
        self._running -= 1

    def _release(self, batch: _Batch, node: str) -> None:
        """Let a node that has ended its builds in this batch build for another one."""
        if self._builders.get(node) is batch:
            del self._builders[node]

    def _fail_over(self, assignment: BuildAssignment, why: str | None) -> bool:
        """Queue a build for its next fallback if `why` names a failure of the machine."""
        if why is None:
            return False
        self.failed[assignment.node] = why
        moved = self._move(assignment, why)
        self._queue += [moved] if moved else []
        return moved is not None

    def _move(self, assignment: BuildAssignment, why: str) -> BuildAssignment | None:
        """Assign a build to the next node that can build it, if there is one."""
        facts = self._progress.facts
        usable = {name: facts[name] for name in facts if name not in self.failed}
        builder = choose_builder(assignment.wheel, usable)
        if isinstance(builder, NoBuilder):
            return None
        key, failure = key_of(assignment.wheel), FailedBuild(node=assignment.node, reason=why)
        self._failed_on[key] = (*self._failed_on.get(key, ()), failure)
        self.assignments[key] = moved = replace(assignment, node=builder)
        report_new_builder(self._run, moved, failure)
        return moved


def _abandoned_builds(run: Run) -> dict[str, tuple[str, ...]]:
    """Return by node the builds that were left running there and that this plan does not need.

    A node builds one wheel at a time, so the builds of this plan end them.
    """
    nodes: dict[str, tuple[str, ...]] = {}
    for key, node in run.journal.left_running().items():
        if key not in run.plan.wheels_by_key:
            nodes[node] = (*nodes.get(node, ()), key)
    return nodes


def build_extravars(
    run: Run, progress: Progress, abandoned: Mapping[str, tuple[str, ...]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the extra variable fleetbuild_builds: host -> wheels, in the plan's order."""
    builds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for assignment in progress.assignments:
        spec = _build(run, progress, assignment, abandoned.get(assignment.node, ()))
        builds[assignment.node].append(spec.model_dump(mode="json", exclude_unset=True))
    return dict(builds)


def _build(
    run: Run, progress: Progress, assignment: BuildAssignment, abandoned: tuple[str, ...]
) -> BuildSpec:
    wheel = assignment.wheel
    source = source_of(wheel)
    path = progress.files[source.identity]
    bases = [progress.stored_wheels[key] for key in wheel.built_against]
    return build_spec(
        run.plan,
        wheel,
        assignment.node,
        cache=run.plan.cache,
        isolation=run.plan.isolation,
        source=str(path),
        source_sha256=source.sha256 or sha256_of(path),
        requirements=(
            *(Requirement(path=str(base.path), sha256=base.sha256) for base in bases),
            *(_requirement(progress, file) for file in wheel.build_dependencies),
        ),
        toolkit_wheels=tuple(_requirement(progress, file) for file in wheel.toolkit_wheels),
        dest=str(incoming(run, assignment)),
        **({"abandoned": abandoned} if abandoned else {}),
    )


def _requirement(progress: Progress, file: LockedFile) -> Requirement:
    return Requirement(path=str(progress.files[file.identity]), sha256=file.sha256)


def _result(
    assignment: BuildAssignment, batch: _Batch, host: HostRun | None, log: str | None
) -> WheelResult:
    reply = batch.replies.get(key_of(assignment.wheel))
    identity = {**wheel_identity(assignment.wheel), "built_on": assignment.node}
    if reply is None:
        return WheelResult(
            state="failed",
            **identity,
            **reason_without_reply(
                assignment.node,
                host,
                batch.failures.get(assignment.node),
                batch.first_failures.get(assignment.node),
            ),
            log=(host.log if host else "") or log,
        )
    if not reply.ok:
        return WheelResult(
            state="failed",
            **identity,
            reason=reply.reason,
            fix=reply.fix or "Read the log, fix the error, then apply again.",
            log=log,
            seconds=reply.seconds,
        )
    return WheelResult(
        state="built", **identity, file=reply.file, sha256=reply.sha256, seconds=reply.seconds,
        cached=reply.cached,
    )  # fmt: skip
