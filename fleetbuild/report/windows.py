"""What the report of a plan says about groups of Windows nodes, which are planned only."""

from __future__ import annotations

from fleetbuild.models import PLANNED_ONLY, Plan, WindowsGroup
from fleetbuild.report.text import clean


def windows_why(group: WindowsGroup) -> list[str]:
    """Return why nothing is built there, and the next command, or why no script is written."""
    problems = [clean(wheel.problem) for wheel in group.wheels if wheel.problem]
    if problems:
        return [PLANNED_ONLY, *problems]
    return [PLANNED_ONLY, "Build by hand: fleetbuild emit windows writes a script."]


def windows_wheels(group: WindowsGroup) -> list[str]:
    """Return the names and versions of a group's wheels."""
    return [f"{clean(each.package)}-{clean(each.wheel_version)}" for each in group.wheels]


def windows_to_supply(plan: Plan) -> list[str]:
    """Return what Windows nodes lack for a build by hand."""
    return [
        f"for a build by hand of {clean(group.name)}: {clean(sentence)}"
        for group in plan.windows
        if not any(wheel.problem for wheel in group.wheels)
        for sentence in group.to_supply
    ]
