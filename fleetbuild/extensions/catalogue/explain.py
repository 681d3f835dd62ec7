"""What `fleetbuild explain` says of named targets and merged groups.

In: a plan. Out: lines.
"""

from __future__ import annotations

from fleetbuild.models import Loss, Plan, PlannedTarget, Tradeoff
from fleetbuild.text import count
from fleetbuild.toolchains.constraints import sm_list


def explain(plan: Plan, name: str) -> list[str]:
    """Return what decides a named target, or how merging changed a node or a group."""
    if plan.group_named(name):
        return _group_merges(plan, name)
    if target := plan.targets.get(name):
        return _target_lines(name, target)
    return _node_merge(plan, name) if name in plan.nodes else []


def _target_lines(name: str, target: PlannedTarget) -> list[str]:
    """Return what a named target gets, and which nodes can and cannot build for it."""
    into = f", in group {target.group}" if target.group else ""
    lines = [f"{name}: named target, {target.state}{into}"]
    if target.reason:
        lines.append(f"because: {target.reason}")
    if target.fix:
        lines.append(f"fix: {target.fix}")
    lines.append(f"nodes that can build for it: {', '.join(target.builders) or 'none'}")
    return lines + [f"cannot build: {why}" for why in target.refused.values()]


def _node_merge(plan: Plan, name: str) -> list[str]:
    """Return why a node was merged into another group; an empty list if it was not."""
    own = plan.nodes[name].merged_from
    return [
        f"merged: its own group would be {own}; of {row.wheel_sets} wheel sets it gets "
        f"{loss.wheel_set}: {_effect(loss)}. {_optimality(row)}"
        for row in plan.tradeoffs
        if row.chosen
        for loss in row.losses
        if loss.group == own
    ]


def _group_merges(plan: Plan, name: str) -> list[str]:
    """Return the nodes merged into a group, and the cost of other numbers of wheel sets."""
    rows = []
    for row in plan.tradeoffs:
        mark = " (chosen)" if row.chosen else ""
        losses = "; ".join(describe_loss(loss) for loss in row.losses) or "no node loses anything"
        rows.append(f"{count(row.wheel_sets, 'wheel set')}{mark}: {format_estimate(row)}; {losses}")
    taken = [
        f"merged: {describe_loss(loss)}. {_optimality(row)}"
        for row in plan.tradeoffs
        if row.chosen
        for loss in row.losses
        if name in (loss.wheel_set, loss.group)
    ]
    return taken + rows


def describe_loss(loss: Loss) -> str:
    """Return "cpu-avx512-cp311 (4 nodes) gets cpu-avx2-cp311: without avx512, …"."""
    nodes = count(loss.nodes, "node")
    return f"{loss.group} ({nodes}) gets {loss.wheel_set}: {_effect(loss)}"


def _effect(loss: Loss) -> str:
    """Return what a loss means for its nodes."""
    effects = []
    if loss.rung:
        percent = round(100 * loss.slower)
        pace = (
            f"CPU work expected to take {percent} % longer" if percent else "expected to be as fast"
        )
        effects.append(f"without {loss.rung}, {pace}")
    if loss.sms:
        effects.append(f"with GPU code for {sm_list(loss.sms)} of others")
    return ", ".join(effects)


def format_estimate(row: Tradeoff) -> str:
    """Return build time and size of all wheels: "4 min, 12 MB"."""
    time = f"{row.minutes:.0f} min" if row.minutes < 100 else f"{row.minutes / 60:.1f} h"
    size = f"{row.size_mb:.0f} MB" if row.size_mb < 1000 else f"{row.size_mb / 1000:.1f} GB"
    return f"{time}, {size}"


def _optimality(row: Tradeoff) -> str:
    if row.exact:
        return "No other merge into this many wheel sets costs less."
    return "There are too many groups to compare every merge; the cheapest pairs were merged first."
