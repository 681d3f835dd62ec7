"""Second stage, fetch: download every locked file that this run needs to the controller, once.

In: build assignments and pending groups. Out: the path of each file. A wheel or group that lacks a
file fails; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage

from fleetbuild.apply.check import reused
from fleetbuild.apply.context import Progress, Run, results_by_node
from fleetbuild.apply.pending import (
    BuildAssignment,
    key_of,
    pending_groups,
    pending_nodes,
    pending_wheels,
    results_of_failed_wheels,
    source_of,
    wheel_identity,
)
from fleetbuild.errors import AuditError, FleetbuildError, InstallError
from fleetbuild.models import LockedFile, NodeResult, PlannedGroup, PlannedWheel, WheelResult
from fleetbuild.models.stored import BuildContext
from fleetbuild.text import count
from fleetbuild.workers import Workers

Outcome = tuple[LockedFile, Path | FleetbuildError]
_CONNECTIONS = 8


def fetch(run: Run, progress: Progress) -> Progress:
    """Fetch sources, build requirements and dependencies; fail the groups that lack a file."""
    wanted = _wanted(run, progress)
    if not wanted:
        return progress
    message = count(len(wanted), "file")
    _refuse_full_disk(run, wanted)
    with run.stage("fetch", message):
        outcomes = _fetch_all(run, wanted)
    files = {file.identity: result for file, result in outcomes if isinstance(result, Path)}
    missing = {
        file.identity: result for file, result in outcomes if isinstance(result, FleetbuildError)
    }
    progress = _store_published(run, replace(progress, files=files, missing=missing))
    return _drop_groups_without_files(run, progress) if missing else progress


def _refuse_full_disk(run: Run, wanted: Sequence[LockedFile]) -> None:
    """Raise before the first download if the disk of the store has too little space for all."""
    needed = run.tools.wheels.missing_bytes(wanted)
    free = disk_usage(run.state.create().root).free
    if needed > free:
        raise InstallError(
            f"The disk of {run.state.root} has {free / 1e6:.0f} MB free, and the files that this"
            f" plan fetches need {needed / 1e6:.0f} MB.",
            "Free space there, remove unused wheels (fleetbuild store gc), or name another"
            " --state-dir; then run the same command again.",
        )


def _fetch_all(run: Run, wanted: Sequence[LockedFile]) -> list[Outcome]:
    """Fetch all files in parallel; return a path or an error for each."""
    with Workers(_CONNECTIONS) as pool:
        outcomes = []
        fetched = pool.map(lambda file: _fetch_one(run, file), wanted)
        for done in range(len(wanted)):
            run.tell("fetch", "progress", wanted[done].file, done=done, total=len(wanted))
            outcomes.append(next(fetched))
        return outcomes


def _wanted(run: Run, progress: Progress) -> list[LockedFile]:
    files = {}
    for assignment in progress.assignments:
        files.update({file.identity: file for file in build_inputs(assignment)})
    files.update({file.identity: file for _, file in _published(run, progress)})
    for group in pending_groups(run.plan, progress.nodes):
        if group.nodes:  # the dependencies of named targets are fetched when they are exported
            files.update({file.identity: file for file in group.dependencies or ()})
    return list(files.values())


def _published(run: Run, progress: Progress) -> Iterator[tuple[PlannedWheel, LockedFile]]:
    """Yield the published wheels that are not in the store yet."""
    for _, wheel in pending_wheels(run.plan, progress.nodes):
        if wheel.published and key_of(wheel) not in progress.stored_wheels:
            yield wheel, wheel.published


def _store_published(run: Run, progress: Progress) -> Progress:
    """Put the fetched published wheels into the store, as if they had been built."""
    stored_wheels, wheels = dict(progress.stored_wheels), dict(progress.wheels)
    for wheel, file in _published(run, progress):
        key = key_of(wheel)
        if error := progress.missing.get(file.identity):
            wheels[key] = _failed_result(wheel, error)
            continue
        path = progress.files[file.identity]
        context = BuildContext(plan_digest=run.plan.digest)
        stored = run.tools.wheels.add(
            path, wheel, built_on="published", seconds=0.0, context=context
        )
        stored_wheels[key] = stored
        wheels[key] = reused(wheel, stored)
    return replace(progress, stored_wheels=stored_wheels, wheels=wheels)


def build_inputs(assignment: BuildAssignment) -> Iterator[LockedFile]:
    """Yield the locked files that a build needs."""
    yield source_of(assignment.wheel)
    yield from assignment.wheel.build_dependencies
    yield from assignment.wheel.toolkit_wheels


def _fetch_one(run: Run, file: LockedFile) -> Outcome:
    try:
        return file, run.tools.wheels.fetch(file)
    except FleetbuildError as error:
        run.tell("fetch", "failed", error.message, package=file.name, fix=error.fix)
        return file, error


def _drop_groups_without_files(run: Run, progress: Progress) -> Progress:
    """Fail the wheels and groups that lack a file; the others go on."""
    wheels = dict(progress.wheels)
    for assignment in progress.assignments:
        if error := _first_error(progress, build_inputs(assignment)):
            wheels[key_of(assignment.wheel)] = _failed_result(
                assignment.wheel, error, assignment.node
            )
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    for group in pending_groups(run.plan, nodes):
        if error := _first_error(progress, iter(group.dependencies or ())):
            nodes |= results_by_node(_failed_nodes(group, error, pending_nodes(group, nodes)))
    assignments = tuple(
        assignment for assignment in progress.assignments if key_of(assignment.wheel) not in wheels
    )
    return replace(progress, nodes=nodes, wheels=wheels, assignments=assignments)


def _first_error(progress: Progress, files: Iterator[LockedFile]) -> FleetbuildError | None:
    errors = (progress.missing.get(file.identity) for file in files)
    return next((error for error in errors if error), None)


def _failed_result(
    wheel: PlannedWheel, error: FleetbuildError, node: str | None = None
) -> WheelResult:
    return WheelResult(
        state="refused" if isinstance(error, AuditError) else "failed",
        **wheel_identity(wheel),
        built_on=node,
        reason=error.message,
        fix=error.fix,
    )


def _failed_nodes(
    group: PlannedGroup, error: FleetbuildError, names: tuple[str, ...]
) -> Iterator[NodeResult]:
    for name in names:
        yield NodeResult(
            node=name,
            group=group.name,
            state="verify_failed" if isinstance(error, AuditError) else "install_failed",
            reason=error.message,
            fix=error.fix,
        )
