"""The second stage: the controller fetches every locked file that this run needs, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

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
from fleetbuild.errors import FleetbuildError
from fleetbuild.models import LockedFile, NodeResult, PlannedGroup, PlannedWheel, WheelResult
from fleetbuild.text import count

Outcome = tuple[LockedFile, Path | FleetbuildError]
_CONNECTIONS = 8


def fetch(run: Run, progress: Progress) -> Progress:
    """Have sources, build requirements and dependencies here; say who misses what."""
    wanted = _wanted(run, progress)
    if not wanted:
        return progress
    message = count(len(wanted), "file")
    with run.stage("fetch", message):
        outcomes = _all(run, wanted)
    files = {file.identity: got for file, got in outcomes if isinstance(got, Path)}
    missing = {file.identity: got for file, got in outcomes if isinstance(got, FleetbuildError)}
    progress = _with_published(run, replace(progress, files=files, missing=missing))
    return _without_inputs(run, progress) if missing else progress


def _all(run: Run, wanted: Sequence[LockedFile]) -> list[Outcome]:
    """Each file, or why it is missing. Ctrl-C waits for no download to end: each stops where it
    is."""
    stopped = threading.Event()

    def heed() -> None:
        if stopped.is_set():
            raise CancelledError

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        try:
            return list(pool.map(lambda file: _one(run, file, heed), wanted))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _wanted(run: Run, progress: Progress) -> list[LockedFile]:
    files = {}
    for order in progress.orders:
        files.update({file.identity: file for file in inputs(order)})
    files.update({file.identity: file for _, file in _published(run, progress)})
    for group in pending_groups(run.plan, progress.nodes):
        files.update({file.identity: file for file in group.dependencies or ()})
    return list(files.values())


def _published(run: Run, progress: Progress) -> Iterator[tuple[PlannedWheel, LockedFile]]:
    """The wheels that others have built, and that the store does not have yet."""
    for _, wheel in pending_wheels(run.plan, progress.nodes):
        if wheel.published and key_of(wheel) not in progress.stored_wheels:
            yield wheel, wheel.published


def _with_published(run: Run, progress: Progress) -> Progress:
    """The same, with each of those wheels in the store, as if it had been built."""
    stored_wheels, wheels = dict(progress.stored_wheels), dict(progress.wheels)
    for wheel, file in _published(run, progress):
        key = key_of(wheel)
        if error := progress.missing.get(file.identity):
            wheels[key] = _lost(wheel, error)
            continue
        path = progress.files[file.identity]
        stored = run.tools.wheels.add(path, wheel, built_on="published", seconds=0.0)
        stored_wheels[key] = stored
        wheels[key] = reused(wheel, stored)
    return replace(progress, stored_wheels=stored_wheels, wheels=wheels)


def inputs(order: BuildAssignment) -> Iterator[LockedFile]:
    """The locked files that a build takes in."""
    yield source_of(order.wheel)
    yield from order.wheel.build_dependencies


def _one(run: Run, file: LockedFile, heed: Callable[[], None]) -> Outcome:
    try:
        return file, run.tools.wheels.fetch(file, heed)
    except FleetbuildError as error:
        run.tell("fetch", "failed", error.message, package=file.name, fix=error.fix)
        return file, error


def _without_inputs(run: Run, progress: Progress) -> Progress:
    """A group that misses a file is out; the others go on."""
    wheels = dict(progress.wheels)
    for order in progress.orders:
        if error := _first_error(progress, inputs(order)):
            wheels[key_of(order.wheel)] = _lost(order.wheel, error, order.node)
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    for group in pending_groups(run.plan, nodes):
        if error := _first_error(progress, iter(group.dependencies or ())):
            nodes |= results_by_node(_uninstallable(group, error, pending_nodes(group, nodes)))
    orders = tuple(order for order in progress.orders if key_of(order.wheel) not in wheels)
    return replace(progress, nodes=nodes, wheels=wheels, orders=orders)


def _first_error(progress: Progress, files: Iterator[LockedFile]) -> FleetbuildError | None:
    errors = (progress.missing.get(file.identity) for file in files)
    return next((error for error in errors if error), None)


def _lost(wheel: PlannedWheel, error: FleetbuildError, node: str | None = None) -> WheelResult:
    return WheelResult(
        state="failed", **wheel_identity(wheel), built_on=node, reason=error.message, fix=error.fix
    )


def _uninstallable(
    group: PlannedGroup, error: FleetbuildError, names: tuple[str, ...]
) -> Iterator[NodeResult]:
    for name in names:
        yield NodeResult(
            node=name,
            group=group.name,
            state="install_failed",
            reason=error.message,
            fix=error.fix,
        )
