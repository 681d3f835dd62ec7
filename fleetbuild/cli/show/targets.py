"""What a plan says of named targets, and of tools to be supplied; `plan.py` prints it."""

from __future__ import annotations

from fleetbuild.models import Plan, PlannedGroup
from fleetbuild.text import clean, count


def targets_line(plan: Plan) -> str:
    """Return the count of a plan for named targets: 12 wheels to build for 12 targets."""
    summary, states = plan.summary, [target.state for target in plan.targets.values()]
    wheels = [f"{count(summary.wheels_to_build, 'wheel')} to build"]
    if summary.wheels_reused:
        wheels.append(f"{summary.wheels_reused} reused")
    targets = count(len(states), "target")
    if blocked := states.count("blocked"):
        targets += f", {blocked} of them blocked"
    return f"Plan: {', '.join(wheels)} for {targets}. Nothing is installed."


def narrowed_targets(plan: Plan) -> list[str]:
    """Return which targets get the wheels of another group: no package makes a difference."""
    return [
        f"{clean(name)} gets the wheels of {clean(target.group)}: no package has code for more."
        for name, target in plan.targets.items()
        if target.group and target.group != name
    ]


def supply_first(plan: Plan) -> str:
    return "supply the missing tools, then " if to_supply(plan) else ""


def next_for_targets(plan: Plan, apply: str) -> str:
    if plan.summary.wheels_to_build or any(wheel.action == "published" for wheel in plan.wheels):
        return f"Next: {supply_first(plan)}{apply}"
    if plan.summary.wheels_reused:
        return "Every wheel is in the store. Next: fleetbuild store export DIR"
    return "Nothing to do: every target is blocked."


def why_for_target(plan: Plan, group: PlannedGroup) -> str:
    """Return why this node builds for a named target."""
    able = {name for target in plan.targets.values() if target.group == group.name
            for name in target.builders}  # fmt: skip
    refused = {name for target in plan.targets.values() for name in target.refused}
    if len(able) == 1:
        return "the only node that can" if refused or len(plan.nodes) > 1 else "the only node"
    return f"compiler, cores, memory, of {len(able)} that can"


def members(plan: Plan, group: PlannedGroup) -> tuple[str, ...]:
    """Return the nodes of a group, or the named targets that get its wheels."""
    of_targets = (name for name, each in plan.targets.items() if each.group == group.name)
    return group.nodes or tuple(of_targets)


def to_supply(plan: Plan) -> list[str]:
    missing = {
        sentence: group.name
        for group in plan.groups
        for wheel in group.wheels
        if wheel.action == "build"
        for sentence in wheel.requires.to_supply
    }
    return [f"to be supplied for {clean(name)}: {clean(text)}" for text, name in missing.items()]
