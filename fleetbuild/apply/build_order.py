"""Wheels in the order of what they are built against: one level is in the store before the next."""

from __future__ import annotations

from dataclasses import replace

from fleetbuild.apply.audit import audit_wheels
from fleetbuild.apply.build import build
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.pending import (
    BuildAssignment,
    key_of,
    planned_wheels,
    results_of_failed_wheels,
    wheel_identity,
)
from fleetbuild.models import WheelResult


def build_and_audit(run: Run, progress: Progress) -> Progress:
    """Have each level built and accepted; what a lost wheel was to carry is not begun."""
    orders = waiting = progress.orders
    while ready := tuple(order for order in waiting if _can_begin(order, progress)):
        waiting = tuple(order for order in waiting if order not in ready)
        progress = audit_wheels(run, build(run, replace(progress, orders=ready)))
    if not waiting:
        return replace(progress, orders=orders)
    wheels = {**progress.wheels, **{key_of(each.wheel): _not_begun(run, each) for each in waiting}}
    for order in waiting:
        reason = wheels[key_of(order.wheel)].reason or ""
        run.tell("build", "failed", reason, group=order.group, package=order.wheel.package)
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, orders=orders, wheels=wheels, nodes=nodes)


def _can_begin(order: BuildAssignment, progress: Progress) -> bool:
    return set(order.wheel.built_against) <= progress.stored_wheels.keys()


def _not_begun(run: Run, order: BuildAssignment) -> WheelResult:
    wheel, known = order.wheel, planned_wheels(run.plan)
    bases = " and ".join(
        f"{known[key].package} {known[key].wheel_version}" for key in wheel.built_against
    )
    return WheelResult(
        **wheel_identity(wheel),
        state="failed",
        reason=f"It is built against {bases}, which did not come to be.",
        fix="Mend that build, and apply again.",
    )
