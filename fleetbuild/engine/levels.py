"""Wheels in the order of what they are built against: one level is in the store before the next."""

from __future__ import annotations

from dataclasses import replace

from fleetbuild.engine.accept import accept
from fleetbuild.engine.build import build
from fleetbuild.engine.run import Progress, Run
from fleetbuild.engine.work import Order, about, fates_by_wheels, key_of, planned_wheels
from fleetbuild.models import WheelResult


def make_wheels(run: Run, progress: Progress) -> Progress:
    """Have each level built and accepted; what a lost wheel was to carry is not begun."""
    orders = waiting = progress.orders
    while ready := tuple(order for order in waiting if _can_begin(order, progress)):
        waiting = tuple(order for order in waiting if order not in ready)
        progress = accept(run, build(run, replace(progress, orders=ready)))
    if not waiting:
        return replace(progress, orders=orders)
    wheels = {**progress.wheels, **{key_of(each.wheel): _not_begun(run, each) for each in waiting}}
    for order in waiting:
        reason = wheels[key_of(order.wheel)].reason or ""
        run.tell("build", "failed", reason, group=order.group, package=order.wheel.package)
    nodes = {**progress.nodes, **fates_by_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, orders=orders, wheels=wheels, nodes=nodes)


def _can_begin(order: Order, progress: Progress) -> bool:
    return set(order.wheel.built_against) <= progress.shelved.keys()


def _not_begun(run: Run, order: Order) -> WheelResult:
    wheel, known = order.wheel, planned_wheels(run.plan)
    bases = " and ".join(
        f"{known[key].package} {known[key].wheel_version}" for key in wheel.built_against
    )
    return WheelResult(
        **about(wheel),
        state="failed",
        reason=f"It is built against {bases}, which did not come to be.",
        fix="Mend that build, and apply again.",
    )
