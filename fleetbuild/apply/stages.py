"""The stages of an apply, in their order, and the run that goes through them.

In: a `Run` (plan, inventory, tools). Out: a `Result`, saved in the state directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from fleetbuild.apply.audit import audit_wheels
from fleetbuild.apply.build import build
from fleetbuild.apply.check import check
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.fetch import fetch
from fleetbuild.apply.pending import (
    BuildAssignment,
    key_of,
    results_of_failed_wheels,
    wheel_identity,
)
from fleetbuild.apply.rollout import rollout
from fleetbuild.apply.write_manifests import emit
from fleetbuild.errors import FleetbuildError, Interrupted
from fleetbuild.models import Result, WheelResult
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.text import fold

StageFunction = Callable[[Run, Progress], Progress]


def build_and_audit(run: Run, progress: Progress) -> Progress:
    """Build and audit wheels; a wheel starts after the wheels that it is built against.

    A wheel is skipped if one of those failed.
    """
    assignments = waiting = progress.assignments
    while ready := tuple(assignment for assignment in waiting if _can_begin(assignment, progress)):
        waiting = tuple(assignment for assignment in waiting if assignment not in ready)
        progress = build(run, replace(progress, assignments=ready))
        progress = audit_wheels(run, progress)
    if not waiting:
        return replace(progress, assignments=assignments)
    wheels = {
        **progress.wheels,
        **{key_of(assignment.wheel): _skipped(run, assignment) for assignment in waiting},
    }
    for assignment in waiting:
        reason = wheels[key_of(assignment.wheel)].reason or ""
        run.tell(
            "build", "failed", reason, group=assignment.group, package=assignment.wheel.package
        )
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, assignments=assignments, wheels=wheels, nodes=nodes)


def _can_begin(assignment: BuildAssignment, progress: Progress) -> bool:
    return set(assignment.wheel.built_against) <= progress.stored_wheels.keys()


def _skipped(run: Run, assignment: BuildAssignment) -> WheelResult:
    wheel, by_key = assignment.wheel, run.plan.wheels_by_key
    bases = " and ".join(
        f"{by_key[key].package} {by_key[key].wheel_version}" for key in wheel.built_against
    )
    return WheelResult(
        **wheel_identity(wheel),
        state="failed",
        reason=f"Skipped: it is built against {bases}, which failed to build.",
        fix=f"Fix the build of {bases}, then apply again.",
    )


def _left_running(run: Run) -> set[str]:
    """Return the nodes on which builds of this plan continue."""
    builds = run.journal.left_running()
    return {node for key, node in builds.items() if key in run.plan.wheels_by_key}


def _drained(run: Run) -> str:
    names = run.journal.left_drained()
    return f" rollout.after has not run for {fold(names)}." if names else ""


# Each stage gets the progress that the stage before it returned. A stage with nothing to do does
# nothing, so running an interrupted apply again resumes it.
STAGES = (check, fetch, build_and_audit, rollout, emit)
# The plan of a repair holds a few nodes; the files that extensions write are about all groups.
REPAIR_STAGES = STAGES[:-1]


def carry_out(run: Run, stages: Sequence[StageFunction] = STAGES) -> Result:
    """Run the stages under the run lock; save and return the result."""
    with hold_run_lock(run.state.create().lock_file):
        packages = run.plan.package_names
        run.journal.note("run started", plan=run.plan.digest, packages=packages)
        try:
            progress = reduce(lambda so_far, stage: stage(run, so_far), stages, Progress())
        except FleetbuildError as error:
            run.journal.note("run ended", error=error.message)
            raise
        except KeyboardInterrupt:
            run.journal.note("run ended", error="interrupted")
            building = _left_running(run)
            ended = "an apply of another plan that builds there ends them"
            continues = f" Builds continue on {fold(building)}; {ended}." if building else ""
            raise Interrupted(
                "Interrupted. No node is between two releases: each serves what it served before, "
                f"or the new release.{continues}{_drained(run)}",
                "To continue from here: fleetbuild apply",
            ) from None
        result = progress.result(run)
        run.state.save_result(result, started=run.started, release=run.plan.release)
        run.journal.note("run ended", exit_code=result.exit_code)
    run.tell("done", "ok" if result.exit_code == 0 else "failed", seconds=result.seconds)
    return result
