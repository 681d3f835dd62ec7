"""Third stage, build: build the assigned wheels on all builders at once, in one Ansible run.

In: build assignments and fetched files. Out: a result for each wheel; built wheels lie in the
incoming folder until the audit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetbuild.ansible import HostRun
from fleetbuild.ansible.role_results import RoleResult, is_disk_full, role_result_of
from fleetbuild.ansible.silent_nodes import AGAIN, describe_loss, tell_waiting
from fleetbuild.apply.build_events import (
    incoming,
    log_of,
    report_end,
    report_failure,
    report_new_builder,
    report_other_groups,
    report_progress,
    report_start,
    report_waiting_groups,
)
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.failover import BuilderPool, failure_before_reply, machine_failure
from fleetbuild.apply.known_failures import explain_failure
from fleetbuild.apply.parallel import one_by_one
from fleetbuild.apply.pending import (
    BuildAssignment,
    build_spec,
    key_of,
    results_of_failed_wheels,
    source_of,
    wheel_identity,
)
from fleetbuild.files import raise_if_folder_is_full, sha256_of
from fleetbuild.models import LockedFile, NodeResult, WheelResult, ignore
from fleetbuild.models.build_parameters import BuildSpec, Requirement
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent


def build(run: Run, progress: Progress) -> Progress:
    """Build each assigned wheel, or record why it failed. A failure stops no other build.

    If a machine fails, the next fallback of the plan builds.
    """
    if not progress.assignments:
        return progress
    run = replace(run, on_event=one_by_one(run.on_event))
    report = partial(report_new_builder, run)
    builders = BuilderPool(progress.facts, progress.failed_builders, report)
    built: dict[str, WheelResult] = {}

    def attempt(some: tuple[BuildAssignment, ...], release: Callable[[str], None]) -> None:
        built.update(_attempt(run, replace(progress, assignments=some), builders, release))

    with run.stage("build", count(len(progress.assignments), "wheel")) as outcome:
        builders.build(progress.assignments, attempt, run.tools.stop)
        built = {
            key: built[key].model_copy(update={"failed_on": builders.failures.get(key, ())})
            for key in builders.assignments
        }
        outcome.failures = sum(wheel.state == "failed" for wheel in built.values())
    assignments = tuple(builders.assignments.values())
    wheels, failed = {**progress.wheels, **built}, builders.failed
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
            f"{said.reason or said.state}",
            fix=said.fix or AGAIN,
        )
        for name, said in facts.items()
        if said.state != "ok"
    }
    for name, result in lost.items():
        about = {"node": name, "group": result.group, "fix": result.fix or ""}
        run.tell("build", "unreachable", result.reason or "", **about)
    return replace(progress, facts={**progress.facts, **facts}, nodes={**progress.nodes, **lost})


@dataclass
class _Replies:
    builders: BuilderPool
    release: Callable[[str], None]  # called with a node that has ended all of its builds
    built: dict[str, RoleResult] = field(default_factory=dict)  # by artifact key
    failures: dict[str, RoleResult] = field(default_factory=dict)  # by node
    # by node: the first package that failed there
    first_failures: dict[str, tuple[str, RoleResult]] = field(default_factory=dict)
    taken_over: set[str] = field(default_factory=set)  # artifact keys, built elsewhere

    def fail_over(self, assignment: BuildAssignment, why: str | None) -> bool:
        """Have the next fallback build this wheel if `why` names a failure of the machine."""
        if why is None or not self.builders.fail_over(assignment, why):
            return False
        self.taken_over.add(key_of(assignment.wheel))
        return True


def _attempt(
    run: Run, progress: Progress, builders: BuilderPool, release: Callable[[str], None]
) -> dict[str, WheelResult]:
    """Run the playbook for these assignments; return the results that no other node takes over."""
    for assignment in progress.assignments:
        run.journal.note("build started", key=key_of(assignment.wheel), node=assignment.node)
    replies, results = _Replies(builders, release), {}
    report_waiting_groups(run, progress)
    hosts = run.tools.run_playbook(
        "build.yml",
        limit=sorted({assignment.node for assignment in progress.assignments}),
        extravars={"fleetbuild_builds": build_extravars(run, progress)},
        on_event=_listener(run, progress.assignments, replies),
    )
    if any(is_disk_full(said.reason) for said in replies.failures.values()):
        # A wheel that does not fit on this machine fails the task that fetches it from its node.
        raise_if_folder_is_full(run.state.root)
    for assignment in progress.assignments:
        key, host = key_of(assignment.wheel), hosts.get(assignment.node)
        if key in replies.taken_over:
            continue
        said = replies.failures.get(assignment.node)
        began = key in replies.built or assignment.node in replies.first_failures
        why = None if began else failure_before_reply(host, said)
        if not replies.fail_over(assignment, why):
            results[key] = _result(assignment, replies, host, log_of(run, assignment))
            if key not in replies.built:
                report_failure(run, assignment, results[key])
    return results


def build_extravars(run: Run, progress: Progress) -> dict[str, list[dict[str, Any]]]:
    """Return the extra variable fleetbuild_builds: host -> wheels, in the plan's order."""
    builds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for assignment in progress.assignments:
        spec = _build(run, progress, assignment)
        builds[assignment.node].append(spec.model_dump(mode="json", exclude_unset=True))
    return dict(builds)


def _build(run: Run, progress: Progress, assignment: BuildAssignment) -> BuildSpec:
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
    )


def _requirement(progress: Progress, file: LockedFile) -> Requirement:
    return Requirement(path=str(progress.files[file.identity]), sha256=file.sha256)


def _listener(
    run: Run, assignments: tuple[BuildAssignment, ...], replies: _Replies
) -> Callable[[TaskEvent], None]:
    """Return a callback that turns Ansible's events into fleetbuild's and keeps the replies."""
    by_host = _by_host(assignments)
    for waiting in by_host.values():
        report_start(run, next(iter(waiting.values())))

    def listen(event: TaskEvent) -> None:
        waiting = by_host[event.host]
        if event.state == "waiting":
            group = next(iter(waiting.values())).group if waiting else None
            tell_waiting(run.on_event, event, group, "build")
            return
        reply = role_result_of(event)
        if event.state == "unreachable":
            lost = HostRun("unreachable", event.message, event.task, event.result.get("silent", 0))
            _give_away(waiting, replies, failure_before_reply(lost, None))
        elif reply and reply.of == "failure":
            replies.failures[event.host] = reply
        elif reply:
            # Accept one reply per build, and only for builds assigned to this node.
            if assignment := waiting.pop(reply.key, None):
                reply = _keep(run, assignment, reply, replies, waiting)
                if waiting and reply.ok:
                    report_start(run, next(iter(waiting.values())))
                else:
                    replies.release(event.host)
        elif waiting:
            report_progress(run, next(iter(waiting.values())), event)

    return listen


def _by_host(
    assignments: tuple[BuildAssignment, ...],
) -> dict[str, dict[str, BuildAssignment]]:
    by_host: dict[str, dict[str, BuildAssignment]] = defaultdict(dict)
    for assignment in assignments:
        by_host[assignment.node][key_of(assignment.wheel)] = assignment
    return by_host


def _keep(
    run: Run,
    assignment: BuildAssignment,
    reply: RoleResult,
    replies: _Replies,
    waiting: dict[str, BuildAssignment],
) -> RoleResult:
    """Keep a reply. If the machine failed, other nodes build this wheel and the waiting ones."""
    run.journal.note("build ended", key=reply.key, node=assignment.node)
    explained = _explain(run, assignment, reply)
    replies.built[reply.key] = explained
    if not reply.ok:
        failure = assignment.wheel.package, explained
        replies.first_failures.setdefault(assignment.node, failure)
        why = machine_failure(reply, _end_of_log(incoming(run, assignment) / "build.log"))
        moved = replies.fail_over(assignment, why)
        _give_away(waiting, replies, why)
        if moved:
            return explained
    report_end(run, assignment, explained)
    return explained


def _give_away(waiting: dict[str, BuildAssignment], replies: _Replies, why: str | None) -> None:
    """Have other nodes build the wheels that wait for a machine that failed."""
    for key, assignment in tuple(waiting.items()):
        if replies.fail_over(assignment, why):
            del waiting[key]


def _explain(run: Run, assignment: BuildAssignment, reply: RoleResult) -> RoleResult:
    """Add reason and fix of a known failure to a reply that has no fix."""
    if reply.ok or reply.fix:
        return reply
    where = assignment.node, assignment.group, assignment.wheel.target
    for text in (reply.reason, _end_of_log(incoming(run, assignment) / "build.log")):
        reason, fix = explain_failure(text, *where)
        if fix:
            errors = reply.reason.partition("\n")[2]
            reason = f"{reason}\n{errors}".strip()
            return reply.model_copy(update={"reason": reason, "fix": fix})
    return reply


def _end_of_log(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (1 << 16)))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _result(
    assignment: BuildAssignment, replies: _Replies, host: HostRun | None, log: str | None
) -> WheelResult:
    reply = replies.built.get(key_of(assignment.wheel))
    identity = {**wheel_identity(assignment.wheel), "built_on": assignment.node}
    if reply is None:
        return WheelResult(
            state="failed",
            **identity,
            **_reason_without_reply(assignment, replies, host),
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


def _reason_without_reply(
    assignment: BuildAssignment, replies: _Replies, host: HostRun | None
) -> dict[str, str]:
    """Return reason and fix for a build without a reply."""
    node = assignment.node
    if host and host.state == "unreachable":
        return {
            "reason": f"{node}: {describe_loss(host)}.",
            "fix": "Once it answers, apply again: the build continues there.",
        }
    if node in replies.first_failures:
        package, why = replies.first_failures[node]
        return {
            "reason": f"Not started: {package}, which is built before it on {node}, failed.",
            "fix": why.fix or f"Read the log of {package}, fix the error, then apply again.",
        }
    failure = replies.failures.get(node)
    said = (failure.reason if failure else "") or (host.message if host else "")
    return {
        "reason": f"{node} stopped before the build: {said or 'no reason given'}",
        "fix": (failure.fix if failure else "") or f"Fix the error on {node}, then apply again.",
    }
