"""Fourth stage, audit: check each wheel that a node built before it enters the store.

In: wheels in the incoming folder. Out: stored wheels, and a result for each refused one. Nodes are
not trusted, so the file itself is checked: hash, tags, CPU features, SMs, libc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path

from fleetbuild.apply.build_events import incoming
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.pending import BuildAssignment, key_of, pins_of, results_of_failed_wheels
from fleetbuild.audit import check_wheel
from fleetbuild.errors import AuditError
from fleetbuild.files import sha256_of
from fleetbuild.models import Plan, PlannedWheel, WheelResult
from fleetbuild.models.revocation import NOTHING_REVOKED, Revocations
from fleetbuild.models.stored import BuildContext, StoredWheel
from fleetbuild.text import count
from fleetbuild.workers import Workers


def audit_wheels(run: Run, progress: Progress) -> Progress:
    """Store each built wheel that passes the audit; refuse the others with a reason."""
    built = [
        assignment
        for assignment in progress.assignments
        if progress.wheels[key_of(assignment.wheel)].state == "built"
    ]
    if not built:
        return progress
    wheels, stored_wheels = dict(progress.wheels), dict(progress.stored_wheels)
    with run.stage("audit", count(len(built), "wheel")) as outcome:
        for assignment, delivered in _read_all(run, progress, built):
            key = key_of(assignment.wheel)
            wheels[key], stored = _audit(run, progress, assignment, wheels[key], delivered)
            if stored:
                stored_wheels[key] = stored
            else:
                outcome.failures += 1
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, wheels=wheels, stored_wheels=stored_wheels, nodes=nodes)


def _read_all(
    run: Run, progress: Progress, built: list[BuildAssignment]
) -> Iterator[tuple[BuildAssignment, tuple[Path, str]]]:
    """Yield each delivered wheel with its problems, the first one read first.

    They are read beside each other: a wheel that takes minutes holds up no other.
    """

    def read(assignment: BuildAssignment) -> tuple[Path, str]:
        result = progress.wheels[key_of(assignment.wheel)]
        path = incoming(run, assignment) / Path(result.file or "").name
        problem = _delivery_problem(path, result)
        return path, problem or "; ".join(run.tools.audit(path, run.plan, assignment.wheel))

    with Workers(max(2, os.cpu_count() or 1)) as readers:
        reading = {readers.submit(read, assignment): assignment for assignment in built}
        for done in as_completed(reading):
            yield reading[done], done.result()


def _audit(
    run: Run,
    progress: Progress,
    assignment: BuildAssignment,
    result: WheelResult,
    delivered: tuple[Path, str],
) -> tuple[WheelResult, StoredWheel | None]:
    path, problem = delivered
    if problem:
        return _refuse(run, assignment, result, problem), None
    builder = progress.facts.get(assignment.node)
    image = assignment.wheel.builder(assignment.node).image
    try:
        stored = run.tools.wheels.add(
            path,
            assignment.wheel,
            built_on=assignment.node,
            seconds=result.seconds or 0.0,
            context=BuildContext(
                plan_digest=run.plan.digest,
                # In a container, the plan's compiler with its image is all that counts.
                toolchain=builder.toolchain if builder and not image else {},
                cached=result.cached,
                sign=run.tools.sign,
            ),
        )
    except AuditError as error:  # of one wheel: the others go on
        return _refuse(run, assignment, result, error.message), None
    path.unlink()  # the store has it now
    run.tell("audit", "ok", path.name, group=assignment.group, package=assignment.wheel.package)
    return result.model_copy(update={"file": str(stored.path), "sha256": stored.sha256}), stored


def audit_findings(
    path: Path, plan: Plan, wheel: PlannedWheel, revoked: Revocations = NOTHING_REVOKED
) -> tuple[str, ...]:
    """Return the problems of a file that should be this wheel of the plan."""
    recalled = ""
    if revoked.entries:
        recalled = revoked.of(wheel.package, wheel.wheel_version, sha256_of(path))
    problems = check_wheel(
        path,
        target=wheel.target,
        package=wheel.package,
        wheel_version=wheel.wheel_version,
        libstdcxx=wheel.libstdcxx,
        pins=pins_of(plan, wheel),
        allowed=wheel.allow_files,
        top_level=wheel.top_level,
    )
    return (*filter(None, [recalled]), *problems)


def _delivery_problem(path: Path, result: WheelResult) -> str:
    """Return the reason why the wheel that a build delivered cannot be read; empty if it can."""
    if path.suffix != ".whl" or path.is_symlink() or not path.is_file():
        return f"{result.built_on} reports that it built a wheel, but no wheel arrived."
    if sha256_of(path) != result.sha256:
        return f"{path.name} changed on the way from {result.built_on}: its sha256 differs."
    return ""


def _refuse(run: Run, assignment: BuildAssignment, result: WheelResult, reason: str) -> WheelResult:
    fix = (
        "Look in the build log for compiler flags that the package adds on its own, correct them in"
        " a recipe, and plan again."
    )
    run.tell(
        "audit",
        "failed",
        reason,
        group=assignment.group,
        node=assignment.node,
        package=assignment.wheel.package,
        fix=fix,
    )
    return result.model_copy(update={"state": "refused", "reason": reason, "fix": fix})
