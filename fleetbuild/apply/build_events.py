"""Events of the build stage, and where a build's files arrive.

In: builds that start, go on, fail over or end. Out: events; paths in the state directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import BuildReply, build_progress_of
from fleetbuild.apply.build_failures import end_of
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.pending import BuildAssignment, key_of, pending_groups
from fleetbuild.models import WheelResult
from fleetbuild.models.result import FailedBuild

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent


# A build's steps write this line.
_REUSED = re.compile(r"^# From the compiler cache: (\d{1,9} of \d{1,9} files)\.$", re.M | re.A)


def incoming(run: Run, assignment: BuildAssignment) -> Path:
    """Return the folder that holds a build's files until they are audited."""
    return run.state.incoming / key_of(assignment.wheel)


def log_of(run: Run, assignment: BuildAssignment) -> str | None:
    """Return the controller's copy of a build's log, if the log arrived."""
    log = incoming(run, assignment) / "build.log"
    return str(log) if log.is_file() else None


def report_start(run: Run, assignment: BuildAssignment) -> None:
    wheel, node = assignment.wheel, assignment.node
    about = {"group": assignment.group, "node": node, "nodes": (node,), "package": wheel.package}
    run.tell("build", "started", wheel.wheel_version, **about)


def report_abandoned(run: Run, assignment: BuildAssignment) -> None:
    """Report that a node first ends a build of an earlier run."""
    node = assignment.node
    message = (
        f"An earlier apply left a build on {node} that this plan does not need: it is ended there"
        " if it still runs, and its folder is kept."
    )
    run.tell("build", "warning", message, group=assignment.group, node=node)


def lacks_cache(run: Run, event: TaskEvent) -> bool:
    """Return whether an event is the result of the toolchain role, without the compiler cache."""
    facts = event.result.get("ansible_facts")
    result = facts.get("toolchain_result") if isinstance(facts, dict) else None
    found = result.get("found") if isinstance(result, dict) else None
    return run.plan.cache != "none" and isinstance(found, dict) and run.plan.cache not in found


def report_missing_cache(run: Run, assignment: BuildAssignment) -> None:
    """Report that a node builds without the compiler cache that build.cache names."""
    node, cache = assignment.node, run.plan.cache
    message = (
        f"{node} has no {cache} (build.cache), and it could not be installed: the wheels are the "
        "same, but each later build there compiles everything again."
    )
    fix = f"Install {cache} on {node}, or set build: {{cache: none}}."
    run.tell("build", "warning", message, group=assignment.group, node=node, fix=fix)


def report_waiting_groups(run: Run, progress: Progress) -> None:
    """Report the groups that wait for a wheel which is built with another group."""
    building = {key_of(assignment.wheel): assignment for assignment in progress.assignments}
    for group in pending_groups(run.plan, progress.nodes):
        for wheel in group.wheels:
            assignment = building.get(key_of(wheel))
            if assignment and assignment.group != group.name:
                message = f"waits for {wheel.package}, built on {assignment.node}"
                run.tell("build", "progress", message, group=group.name)


def report_new_builder(run: Run, moved: BuildAssignment, failure: FailedBuild) -> None:
    wheel = moved.wheel
    key, about = key_of(wheel), {"group": moved.group, "package": wheel.package}
    run.journal.note("builder failed", key=key, node=failure.node, reason=failure.reason)
    message = (
        f"{wheel.package} was not built on {failure.node}: {failure.reason} {moved.node} builds it."
    )
    run.tell("build", "warning", message, node=failure.node, **about)


def report_failure(run: Run, assignment: BuildAssignment, wheel: WheelResult) -> None:
    """Report a build that ended without a reply."""
    about = {"package": wheel.package, "node": assignment.node, "log": wheel.log}
    reason, fix = wheel.reason or "", wheel.fix or ""
    run.tell("build", "failed", reason, group=assignment.group, fix=fix, **about)


def report_other_groups(run: Run, progress: Progress, built: Mapping[str, WheelResult]) -> None:
    """Report the groups that lack a wheel whose build for another group failed."""
    for group in pending_groups(run.plan, progress.nodes):
        for key in map(key_of, group.wheels):
            if key in built and built[key].state == "failed":
                builder = _group_of(progress, key)
                if builder != group.name:
                    reason, package = f"Its build for {builder} failed.", built[key].package
                    run.tell("build", "failed", reason, group=group.name, package=package)


def _group_of(progress: Progress, key: str) -> str:
    return next(
        assignment.group for assignment in progress.assignments if key_of(assignment.wheel) == key
    )


def report_end(run: Run, assignment: BuildAssignment, reply: BuildReply) -> None:
    run.tell(
        "build",
        "ok" if reply.ok else "failed",
        _what_was_built(run, assignment, reply) if reply.ok else reply.reason,
        group=assignment.group,
        node=assignment.node,
        package=assignment.wheel.package,
        fix="" if reply.ok else reply.fix,
        log=None if reply.ok else log_of(run, assignment),
        seconds=None if reply.cached else reply.seconds,
    )


def _what_was_built(run: Run, assignment: BuildAssignment, reply: BuildReply) -> str:
    if reply.cached:
        return "already built"
    reused = _REUSED.search(end_of(incoming(run, assignment) / "build.log"))
    return f"built with the compiler cache ({reused[1]})" if reused else "built"


def report_progress(run: Run, assignment: BuildAssignment, event: TaskEvent) -> None:
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
