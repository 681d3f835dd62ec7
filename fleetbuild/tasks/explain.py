"""`fleetbuild explain`: why a node or group is planned so, by the last probe or by captures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fleetbuild.models import Plan
from fleetbuild.models._base import Frozen
from fleetbuild.planner.facts import facts_from
from fleetbuild.planning import explain_group, explain_node
from fleetbuild.probe.captures import load_captures
from fleetbuild.state.directory import StateDir


class Explanation(Frozen):
    """Why a node or group is what it is, and from when the facts are that say so."""

    name: str
    lines: tuple[str, ...]
    planned: str
    probed: str | None = None


def explained(plan: Plan, name: str, state: StateDir, captures: Path | None) -> Explanation:
    """The story of a node or group, by captures or by what the last probe brought."""
    group = plan.group_named(name)
    names = tuple(group.nodes) if group else (name,)
    folder = captures or state.facts
    known = {each for each in names if each in plan.nodes and (captures or state.probed(each))}
    facts = facts_from(load_captures(folder, sorted(known))) if known else {}
    lines = explain_group(plan, facts, name) if group else explain_node(plan, facts.get(name), name)
    ages = () if captures else (state.probed(each) for each in known)
    return Explanation(name=name, lines=tuple(lines), planned=plan.created, probed=_oldest(ages))


def _oldest(ages: Iterator[datetime | None] | tuple[()]) -> str | None:
    known = [age for age in ages if age]
    return min(known).isoformat() if known else None
