"""Whether a builder can isolate builds: in namespaces, without network and other folders.

In: planned wheels, facts, configuration. Out: the reason and fix for each group that
`build.isolation: required` blocks, or warnings. Called when a plan is assembled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from fleetbuild.models import Facts, PlannedWheel
from fleetbuild.models.problem import Problem


def why_not_isolated(node: str, facts: Facts | None) -> Problem | None:
    """Return why a node is known to be unable to isolate builds; None if it may be able."""
    if facts is None or facts.for_builds.can_isolate is not False:
        return None
    setting = facts.isolation_setting
    reason = f"{node} cannot isolate builds: its kernel or container allows no user namespaces"
    if setting is None:
        return Problem(
            f"{reason}.",
            f"Allow user namespaces on {node}, or let another node build (build.builders).",
        )
    value = "0" if setting.startswith("kernel.apparmor") else "1"
    value = "10000" if setting == "user.max_user_namespaces" else value
    fix = (
        f"On {node}, as root: sysctl -w {setting}={value}. Or let Ansible become root there"
        " (ansible_become), or let another node build (build.builders)."
    )
    return Problem(f"{reason} ({setting}).", fix)


def groups_without_isolation(
    wheels: Mapping[tuple[str, str], PlannedWheel], facts: Mapping[str, Facts]
) -> dict[str, Problem]:
    """Return the groups with a wheel to build on a node that cannot isolate, with the problem.

    `wheels` are keyed by package and group.
    """
    problems: dict[str, Problem] = {}
    for (_, group), wheel in wheels.items():
        problem = why_not_isolated(wheel.built_on or "", facts.get(wheel.built_on or ""))
        if wheel.action == "build" and problem:
            reason, fix = problem
            reason = f"{reason} build.isolation is required."
            fix = f"{fix} Or set build.isolation: preferred."
            problems.setdefault(group, Problem(reason, fix))
    return problems


def isolation_warnings(wheels: Iterable[PlannedWheel], facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a warning for each node that will build without isolation."""
    built: dict[str, dict[str, None]] = defaultdict(dict)
    for wheel in wheels:
        if wheel.action == "build" and wheel.built_on:
            built[wheel.built_on][wheel.package] = None
    for node, packages in built.items():
        if problem := why_not_isolated(node, facts.get(node)):
            reason, fix = problem
            reach = f"Its builds ({', '.join(packages)}) reach the network and other files."
            yield f"{reason} {reach} {fix}"
