"""Wheels that are known to die on a node.

In: groups, their locked files, and what an extension knows of wheels. Out: bounds below the
versions that die, and the problem of each node on which one dies nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fleetbuild.extension import Evidence
from fleetbuild.models import LockedFile, Target
from fleetbuild.models.problem import Problem
from fleetbuild.models.verdict import VERDICT_WORDS, Verdict
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import below
from fleetbuild.plan.decide.resolution import Resolution

OLDER = 4  # minor versions that are tried in place of one that dies


class _Death(NamedTuple):
    group: str
    node: str
    file: LockedFile
    verdict: Verdict


def nodes_with_known_deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], evidence: Evidence
) -> dict[str, Problem]:
    """Return the nodes on which a dependency dies, each with versions that ran there."""
    return {death.node: _problem(death) for death in _deaths(groups, dependencies, evidence)}


def bounds_below_deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], evidence: Evidence
) -> dict[str, tuple[str, ...]]:
    """Return bounds for each group with a dependency that dies at import: older minor versions."""
    bounds: dict[str, set[str]] = {}
    for death in _deaths(groups, dependencies, evidence):
        if death.verdict.verdict == "dies-at-import":
            bounds.setdefault(death.group, set()).add(below(death.file.name, death.file.version))
    return {group: tuple(sorted(texts)) for group, texts in bounds.items()}


def _deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], evidence: Evidence
) -> Iterator[_Death]:
    """Yield the first dependency that dies on each node."""
    for group in groups:
        wheels = dependencies[group.name].wheels if group.name in dependencies else ()
        alike: dict[Target, list[str]] = {}  # most nodes show the same features as others
        for node, facts in group.members.items():
            seen = {"features": facts.features, "sms": facts.sms}
            alike.setdefault(group.target.model_copy(update=seen), []).append(node)
        for target, nodes in alike.items():
            for file in wheels:
                found = evidence.verdict(file, target, wheels)
                if found and _is_certain(found):
                    yield from (_Death(group.name, node, file, found) for node in nodes)
                    break


def _is_certain(found: Verdict) -> bool:
    """Return whether a wheel dies there; a death in code that may never be called was only read."""
    return found.verdict == "dies-at-import" or (found.dies and found.evidence != "static")


def _problem(death: _Death) -> Problem:
    file, found = death.file, death.verdict
    said = "has no kernel" if found.verdict == "no-kernel" else VERDICT_WORDS[found.verdict]
    reason = f"{file.name} {file.version}, a dependency, {said} there: {found.where}."
    constrain = (
        f"{file.name}=={found.instead[-1]}" if found.instead else f"{file.name}!={file.version}"
    )
    ran = f" ({', '.join(found.instead)} ran on such a CPU)" if found.instead else ""
    return Problem(
        reason, f"Write {constrain} into a constraints file and plan with --constraint FILE{ran}."
    )
