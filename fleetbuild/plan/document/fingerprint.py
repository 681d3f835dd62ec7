"""Fingerprints: find out whether a node has changed since the plan was made.

In: a node's facts, then and now. Out: the facts that decide its target, and a sentence for each
change, also of the release that serves. `apply` checks this before it builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, Plan, Python
from fleetbuild.models.digest import digest

RUNG_FEATURES = frozenset(feature for rung in RUNGS.values() for feature in rung.features)
_FIELD_NAMES = {
    "arch": "architecture",
    "isa": "rung",
    "sms": "list of GPU compute capabilities",
    "driver": "GPU driver",
    "libc": "C library",
}


def fingerprint(facts: Facts, python: Python | None) -> dict[str, Any]:
    """Return the facts of a node that decide its target. No apply changes them."""
    return {
        "arch": facts.arch,
        "isa": facts.isa,
        # Flags outside all rungs change with kernels and decide nothing.
        "features": _features_digest(RUNG_FEATURES.intersection(facts.features)),
        "sms": sorted(facts.sms),
        "driver": facts.driver,
        "libc": f"{facts.libc.family} {facts.libc.version}" if facts.libc else None,
        "python": [python.path, python.tag] if python else None,
    }


@lru_cache(maxsize=1000)  # the nodes of a fleet have few kinds of processors
def _features_digest(features: frozenset[str]) -> str:
    return digest(sorted(features))[:16]


def changes_since_plan(plan: Plan, facts: Mapping[str, Facts]) -> list[str]:
    """Return a sentence for each change since the plan was made; an empty list if nothing changed.

    A node that does not answer counts as unreachable, not as changed: apply goes on without it.
    """
    sentences: list[str] = []
    for name, planned in sorted(plan.fingerprint.items()):
        now = facts.get(name)
        if now is not None and now.state == "skipped":
            sentences.append(f"{name}: {now.reason}")
        elif now is not None and now.state != "unreachable":
            sentences += _differences(name, planned, now)
    return sentences + _overtaken(plan, facts)


def _overtaken(plan: Plan, facts: Mapping[str, Facts]) -> list[str]:
    """Return a sentence for each node that serves a release unknown to this plan.

    A node that serves nothing any more does not count: the plan installs its release again.
    """
    sentences = []
    for name, group in sorted(plan.groups_by_node.items()):
        now = facts[name].release.get(plan.release) if name in facts else None
        before = plan.nodes[name].current
        unknown = before is None and plan.facts_source == "captures"
        if now is not None and now.id not in (before, group.release_id) and not unknown:
            then = f"release {before}" if before else "no release"
            sentences.append(
                f"{name}: it served {then} when the plan was made and serves release {now.id} now,"
                " which another apply or a rollback activated."
            )
    return sentences


def _differences(name: str, planned: Mapping[str, Any], facts: Facts) -> list[str]:
    now = fingerprint(facts, None)
    found = [
        f"{name}: its {field} was {_format(planned.get(key))} when the plan was made and is "
        f"{_format(now[key])} now."
        for key, field in _FIELD_NAMES.items()
        if planned.get(key) != now[key]
    ]
    # The digest shows only that flags differ. A changed rung is reported already.
    if planned.get("features") != now["features"] and planned.get("isa") == now["isa"]:
        found.append(f"{name}: its CPU flags have changed since the plan was made.")
    return found + _python_difference(name, planned.get("python"), facts)


def _python_difference(name: str, planned: Any, facts: Facts) -> list[str]:
    if not planned:
        return []
    path, tag = planned
    tags = {python.path: python.tag for python in facts.pythons}
    if path not in tags:
        return [f"{name}: the interpreter {path} existed when the plan was made and is gone now."]
    if tags[path] != tag:
        return [f"{name}: {path} was {tag} when the plan was made and is {tags[path]} now."]
    return []


def _format(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "unknown" if value is None else str(value)
