"""Third stage, build: build the assigned wheels on all builders at once, in one Ansible run.

In: build assignments and fetched files. Out: a result for each wheel; built wheels lie in the
incoming folder until the audit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetbuild.ansible.role_results import RoleResult, build_progress_of, role_result_of
from fleetbuild.ansible.silent_nodes import describe_loss, tell_waiting
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.known_failures import explain_failure
from fleetbuild.apply.pending import (
    BuildAssignment,
    BuildPlace,
    build_spec,
    key_of,
    pending_groups,
    results_of_failed_wheels,
    source_of,
    wheel_identity,
)
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile, WheelResult
from fleetbuild.models.role_parameters import BuildSpec, Requirement
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent


def build(run: Run, progress: Progress) -> Progress:
    """Build each assigned wheel, or record why it failed. A failure stops no other build."""
    if not progress.assignments:
        return progress
    for assignment in progress.assignments:
        run.journal.note("build started", key=key_of(assignment.wheel), node=assignment.node)
    with run.stage("build", count(len(progress.assignments), "wheel")) as outcome:
        replies, hosts = _run_playbook(run, progress)
        built = {
            key_of(assignment.wheel): _result(
                assignment, replies, hosts.get(assignment.node), _log_of(run, assignment)
            )
            for assignment in progress.assignments
        }
        outcome.failures = sum(wheel.state == "failed" for wheel in built.values())
    _report_failures(run, progress, built, replies)
    for key in replies.built:
        run.journal.note("build ended", key=key)
    wheels = {**progress.wheels, **built}
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, wheels=wheels, nodes=nodes, changed=True)


@dataclass
class _Replies:
    built: dict[str, RoleResult] = field(default_factory=dict)  # by artifact key
    failures: dict[str, RoleResult] = field(default_factory=dict)  # by node
    # by node: the first package that failed there
    first_failures: dict[str, tuple[str, RoleResult]] = field(default_factory=dict)


def _run_playbook(run: Run, progress: Progress) -> tuple[_Replies, Mapping[str, HostRun]]:
    replies = _Replies()
    _report_waiting_groups(run, progress)
    hosts = run.tools.playbook(
        "build.yml",
        limit=sorted({assignment.node for assignment in progress.assignments}),
        extravars={"fleetbuild_builds": build_extravars(run, progress)},
        on_event=_listener(run, progress.assignments, replies),
    )
    return replies, hosts


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
    place = BuildPlace(
        node=assignment.node,
        python=wheel.build_pythons[assignment.node],
        cache=run.plan.cache,
        isolation=run.plan.isolation,
        source=str(path),
        source_sha256=source.sha256 or sha256_of(path),
        requirements=(
            *(Requirement(path=str(base.path), sha256=base.sha256) for base in bases),
            *(_requirement(progress, file) for file in wheel.build_dependencies),
        ),
        dest=str(incoming(run, assignment)),
    )
    return build_spec(run.plan, wheel, place)


def _requirement(progress: Progress, file: LockedFile) -> Requirement:
    return Requirement(path=str(progress.files[file.identity]), sha256=file.sha256)


def incoming(run: Run, assignment: BuildAssignment) -> Path:
    """Return the folder that holds a build's files until they are audited."""
    return (run.state.incoming / key_of(assignment.wheel)).resolve()


def _listener(
    run: Run, assignments: tuple[BuildAssignment, ...], replies: _Replies
) -> Callable[[TaskEvent], None]:
    """Return a callback that turns Ansible's events into fleetbuild's and keeps the replies."""
    by_host = _by_host(assignments)
    for waiting in by_host.values():
        _report_start(run, next(iter(waiting.values())))

    def listen(event: TaskEvent) -> None:
        waiting = by_host[event.host]
        if event.state == "waiting":
            group = next(iter(waiting.values())).group if waiting else None
            tell_waiting(run.on_event, event, group, "build")
            return
        reply = role_result_of(event)
        if reply and reply.of == "failure":
            replies.failures[event.host] = reply
        elif reply:
            # Accept one reply per build, and only for builds assigned to this node.
            if assignment := waiting.pop(reply.key, None):
                reply = _keep(run, assignment, reply, replies)
                if waiting and reply.ok:
                    _report_start(run, next(iter(waiting.values())))
        elif waiting:
            _report_progress(run, next(iter(waiting.values())), event)

    return listen


def _by_host(
    assignments: tuple[BuildAssignment, ...],
) -> dict[str, dict[str, BuildAssignment]]:
    by_host: dict[str, dict[str, BuildAssignment]] = defaultdict(dict)
    for assignment in assignments:
        by_host[assignment.node][key_of(assignment.wheel)] = assignment
    return by_host


def _keep(
    run: Run, assignment: BuildAssignment, reply: RoleResult, replies: _Replies
) -> RoleResult:
    reply = _explain(run, assignment, reply)
    replies.built[reply.key] = reply
    if not reply.ok:
        failure = assignment.wheel.package, reply
        replies.first_failures.setdefault(assignment.node, failure)
    _report_end(run, assignment, reply)
    return reply


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


def _log_of(run: Run, assignment: BuildAssignment) -> str | None:
    """Return the controller's copy of a build's log, if the log arrived."""
    log = incoming(run, assignment) / "build.log"
    return str(log) if log.is_file() else None


def _report_start(run: Run, assignment: BuildAssignment) -> None:
    wheel, node = assignment.wheel, assignment.node
    about = {"group": assignment.group, "node": node, "nodes": (node,), "package": wheel.package}
    run.tell("build", "started", wheel.wheel_version, **about)


def _report_waiting_groups(run: Run, progress: Progress) -> None:
    """Report the groups that wait for a wheel which is built with another group."""
    building = {key_of(assignment.wheel): assignment for assignment in progress.assignments}
    for group in pending_groups(run.plan, progress.nodes):
        for wheel in group.wheels:
            assignment = building.get(key_of(wheel))
            if assignment and assignment.group != group.name:
                message = f"waits for {wheel.package}, built on {assignment.node}"
                run.tell("build", "progress", message, group=group.name)


def _report_failures(
    run: Run, progress: Progress, built: Mapping[str, WheelResult], replies: _Replies
) -> None:
    """Report builds that ended without a reply, and the other groups that lack a failed wheel."""
    told = set()
    for assignment in progress.assignments:
        key, wheel = key_of(assignment.wheel), built[key_of(assignment.wheel)]
        if wheel.state != "failed":
            continue
        if key not in replies.built:
            about = {"package": wheel.package, "node": assignment.node, "log": wheel.log}
            reason, fix = wheel.reason or "", wheel.fix or ""
            run.tell("build", "failed", reason, group=assignment.group, fix=fix, **about)
        told.add((assignment.group, key))
    for group in pending_groups(run.plan, progress.nodes):
        for key in map(key_of, group.wheels):
            if key in built and built[key].state == "failed" and (group.name, key) not in told:
                reason = f"Its build for {_group_of(progress, key)} failed."
                run.tell("build", "failed", reason, group=group.name, package=built[key].package)


def _group_of(progress: Progress, key: str) -> str:
    return next(each.group for each in progress.assignments if key_of(each.wheel) == key)


def _report_end(run: Run, assignment: BuildAssignment, reply: RoleResult) -> None:
    run.tell(
        "build",
        "ok" if reply.ok else "failed",
        reply.reason if not reply.ok else "already built" if reply.cached else "built",
        group=assignment.group,
        node=assignment.node,
        package=assignment.wheel.package,
        fix="" if reply.ok else reply.fix,
        log=None if reply.ok else _log_of(run, assignment),
        seconds=None if reply.cached else reply.seconds,
    )


def _report_progress(run: Run, assignment: BuildAssignment, event: TaskEvent) -> None:
    report = build_progress_of(event)
    if report is None:
        return
    run.tell(
        "build",
        "progress",
        report.last_line[:2000],
        group=assignment.group,
        node=assignment.node,
        package=assignment.wheel.package,
        done=report.done if report.total else report.steps,
        total=report.total or None,
    )


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
