"""Show groups of Windows nodes, their targets and wheels, and what nodes lack.

In: a `WindowsPlan`. Out: lines and warnings for `fleetbuild emit windows`.
"""

from __future__ import annotations

from fleetbuild.extensions.windows.planning import WindowsGroup, WindowsPlan
from fleetbuild.text import clean


def group_lines(group: WindowsGroup) -> list[str]:
    """Return what decides this group's target and wheels."""
    target = group.target
    sms = f", SM {', '.join(target.sms)}" if target.sms else ", no GPU code"
    lines = [
        f"{group.name}: {', '.join(map(clean, group.nodes))}",
        f"  target: windows {target.arch}, {target.isa}, {target.python}{sms}",
    ]
    if group.toolset_below:
        lines.append(f"  compiler: MSVC older than {group.toolset_below}")
    for wheel in group.wheels:
        cuda = f", CUDA {wheel.given.cuda}: {wheel.cuda_why}" if wheel.given.cuda else ""
        named = f"{wheel.package.name} {wheel.given.wheel_version}: recipe {wheel.recipe.name}"
        lines.append(f"  {clean(named)}{cuda}")
    return lines


def windows_warnings(plan: WindowsPlan) -> tuple[str, ...]:
    """Return a sentence for each node and group without a script, and for what nodes lack."""
    told = [
        f"{name}: {problem.reason.rstrip('.')}. {problem.fix}".rstrip()
        for name, problem in plan.problems.items()
    ]
    told += [f"{name}: {warning}" for name, each in plan.warnings.items() for warning in each]
    for group in plan.groups:
        if group.problem:
            told.append(f"{group.name} gets no script: {group.problem}")
        else:
            told += (f"{group.name}: {sentence}" for sentence in group.to_supply)
    if not (plan.groups or plan.problems):
        told.append("No node has ansible_shell_type: powershell, so no script is written.")
    return tuple(map(clean, told))
