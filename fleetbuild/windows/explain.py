"""Explain a group of Windows nodes: its target, and how its wheels are built by hand.

In: a group of a saved plan. Out: lines for `fleetbuild explain`.
"""

from __future__ import annotations

from fleetbuild.models import PLANNED_ONLY, Plan, WindowsGroup, WindowsWheel
from fleetbuild.text import clean


def explain_windows_group(group: WindowsGroup) -> list[str]:
    """Return everything that decides this group's target and scripts, as lines."""
    target = group.target
    sms = f", SM {', '.join(target.sms)}" if target.sms else ", no GPU code"
    lines = [
        f"{group.name}: {', '.join(group.nodes)}",
        f"  because: {PLANNED_ONLY}",
        f"  target: {target.os} {target.arch}, {target.python}{sms}",
        f"  rung: {target.isa}: {' '.join(target.features)}",
    ]
    if group.toolset_below:
        lines.append(f"  compiler: MSVC older than {group.toolset_below}")
    for wheel in group.wheels:
        lines += windows_wheel_lines(wheel)
    return lines + [f"  to supply: {sentence}" for sentence in group.to_supply]


def windows_wheel_lines(wheel: WindowsWheel) -> list[str]:
    """Return how one wheel is built, as lines."""
    lines = [f"  {wheel.package} {wheel.wheel_version}: recipe {wheel.recipe}"]
    if wheel.problem:
        return [*lines, f"    no script: {wheel.problem}"]
    if wheel.cuda:
        lines.append(f"    CUDA {wheel.cuda}: {wheel.cuda_why}")
    lines += [f"    {name}={value}" for name, value in wheel.environment.items()]
    lines += [f"    setting {name}={value}" for name, value in wheel.config_settings.items()]
    lines += [f"    patch: {name}" for name in wheel.patches]
    needs = ", ".join(wheel.build_requirements)
    return lines + ([f"    build requirements: {needs}"] if needs else [])


def windows_why(group: WindowsGroup) -> list[str]:
    """Return why nothing is built there, and the next command, or why no script is written."""
    problems = [clean(wheel.problem) for wheel in group.wheels if wheel.problem]
    if problems:
        return [PLANNED_ONLY, *problems]
    return [PLANNED_ONLY, "Build by hand: fleetbuild emit windows writes a script."]


def windows_wheels(group: WindowsGroup) -> list[str]:
    """Return the names and versions of a group's wheels."""
    return [f"{clean(wheel.package)}-{clean(wheel.wheel_version)}" for wheel in group.wheels]


def windows_to_supply(plan: Plan) -> list[str]:
    """Return what Windows nodes lack for a build by hand."""
    return [
        f"for a build by hand of {clean(group.name)}: {clean(sentence)}"
        for group in plan.windows
        if not any(wheel.problem for wheel in group.wheels)
        for sentence in group.to_supply
    ]
