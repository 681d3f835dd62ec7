"""The fourth stage: a wheel that comes from a node is doubted until it proves what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fleetbuild.apply.build import incoming
from fleetbuild.apply.context import Progress, Run, StoredFile
from fleetbuild.apply.pending import BuildAssignment, key_of, pins_of, results_of_failed_wheels
from fleetbuild.audit import check_wheel
from fleetbuild.files import sha256_of
from fleetbuild.models import Plan, PlannedWheel, WheelResult
from fleetbuild.text import count


def audit_wheels(run: Run, progress: Progress) -> Progress:
    """Put each built wheel into the store, or refuse it and say what is wrong with it."""
    built = [
        order for order in progress.orders if progress.wheels[key_of(order.wheel)].state == "built"
    ]
    if not built:
        return progress
    wheels, stored_wheels = dict(progress.wheels), dict(progress.stored_wheels)
    with run.stage("audit", count(len(built), "wheel")) as ending:
        for order in built:
            key = key_of(order.wheel)
            wheels[key], stored = _judge(run, order, wheels[key])
            if stored:
                stored_wheels[key] = stored
            else:
                ending.failures += 1
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, wheels=wheels, stored_wheels=stored_wheels, nodes=nodes)


def _judge(
    run: Run, order: BuildAssignment, result: WheelResult
) -> tuple[WheelResult, StoredFile | None]:
    path, problem = _delivered(run, order, result)
    problems = [problem] if problem else []
    if path is not None:
        problems += run.tools.findings(path, run.plan, order.wheel)
    if problems or path is None:
        refused = _refuse(run, order, result, "; ".join(problems))
        return refused, None
    stored = run.tools.wheels.add(
        path, order.wheel, built_on=order.node, seconds=result.seconds or 0.0
    )
    path.unlink()  # the store has it now
    run.tell("audit", "ok", path.name, group=order.group, package=order.wheel.package)
    return result.model_copy(update={"file": str(stored.path), "sha256": stored.sha256}), stored


def audit_findings(path: Path, plan: Plan, wheel: PlannedWheel) -> tuple[str, ...]:
    """What speaks against a file that should be this wheel of the plan."""
    return check_wheel(
        path,
        target=wheel.target,
        package=wheel.package,
        wheel_version=wheel.wheel_version,
        libstdcxx=wheel.libstdcxx,
        pins=pins_of(plan, wheel),
    )


def _delivered(run: Run, order: BuildAssignment, result: WheelResult) -> tuple[Path | None, str]:
    """The one wheel that the build brought, and why it is not the one that was sent."""
    files = [
        path
        for path in sorted(incoming(run, order).glob("*.whl"))
        if path.is_file() and not path.is_symlink()
    ]
    named = [path for path in files if result.file and path.name == Path(result.file).name]
    if len(named) != 1:
        return None, f"{order.node} says that it built a wheel, and none arrived."
    if sha256_of(named[0]) != result.sha256:
        return None, f"{named[0].name} changed on its way from {order.node}: its sha256 differs."
    return named[0], ""


def _refuse(run: Run, order: BuildAssignment, result: WheelResult, reason: str) -> WheelResult:
    fix = (
        "Look at the build log for flags that the package adds on its own, set them right in a"
        " recipe, and plan again."
    )
    run.tell(
        "audit",
        "failed",
        reason,
        group=order.group,
        node=order.node,
        package=order.wheel.package,
        fix=fix,
    )
    return result.model_copy(update={"state": "refused", "reason": reason, "fix": fix})
