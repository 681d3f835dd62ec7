"""`fleetbuild explain`: say why a node or group is planned as it is.

In: a plan, and facts from the last probe or from captures. Out: an `Explanation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fleetbuild.models import Plan
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide import explain_group, explain_node
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.facts import facts_from
from fleetbuild.state import StateDir


class Explanation(Frozen):
    """The explanation of a node or group, with the age of the facts that it is based on."""

    name: str
    lines: tuple[str, ...]
    planned: str
    probed: str | None = None


def explain_name(
    plan: Plan, name: str, state: StateDir, captures: Path | str | None
) -> Explanation:
    """Explain a node or group from captures, or else from the last probe."""
    group = plan.group_named(name)
    windows = plan.windows_group_named(name)
    names: tuple[str, ...] = windows.nodes if windows else (name,)
    if group:
        names = group.nodes or (group.representative, *group.fallbacks)
    folder = Path(captures) if captures else state.facts
    known = {each for each in names if each in plan.nodes and (captures or state.probed(each))}
    facts = facts_from(load_captures(folder, sorted(known))) if known else {}
    lines = (
        explain_group(plan, facts, name)
        if group or windows
        else explain_node(plan, facts.get(name), name)
    )
    ages = () if captures else (state.probed(each) for each in known)
    return Explanation(name=name, lines=tuple(lines), planned=plan.created, probed=_oldest(ages))


def _oldest(ages: Iterator[datetime | None] | tuple[()]) -> str | None:
    known = [age for age in ages if age]
    return min(known).isoformat() if known else None
