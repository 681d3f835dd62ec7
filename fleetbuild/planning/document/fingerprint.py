"""What decides a node's target, and in which words it is no longer what was planned for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, Plan, Python
from fleetbuild.planning.wheels.keys import digest

_KNOWN = frozenset(feature for rung in RUNGS.values() for feature in rung.features)
_WORDS = {
    "arch": "architecture",
    "isa": "rung",
    "sms": "GPUs' list of compute capabilities",
    "driver": "GPU driver",
    "libc": "C library",
}


def fingerprint(facts: Facts, python: Python | None) -> dict[str, Any]:
    """The facts of a node that decide its target, and none that an apply changes."""
    return {
        "arch": facts.arch,
        "isa": facts.isa,
        # Flags that no rung asks about come and go with kernels; they decide nothing.
        "features": digest(sorted(_KNOWN & set(facts.features)))[:16],
        "sms": sorted(facts.sms),
        "driver": facts.driver,
        "libc": f"{facts.libc.family} {facts.libc.version}" if facts.libc else None,
        "python": [python.path, python.tag] if python else None,
    }


def stale(plan: Plan, facts: Mapping[str, Facts]) -> list[str]:
    """Sentences that say which node is no longer what was planned for; none if all are.

    A node that does not answer is not stale: it is unreachable, and the rest goes on.
    """
    sentences: list[str] = []
    for name, planned in sorted(plan.fingerprint.items()):
        now = facts.get(name)
        if now is not None and now.state == "skipped":
            sentences.append(f"{name}: {now.reason}")
        elif now is not None and now.state != "unreachable":
            sentences += _differences(name, planned, now)
    return sentences


def _differences(name: str, planned: Mapping[str, Any], facts: Facts) -> list[str]:
    now = fingerprint(facts, None)
    found = [
        f"{name}: its {word} was {_said(planned.get(key))} when the plan was made and is "
        f"{_said(now[key])} now."
        for key, word in _WORDS.items()
        if planned.get(key) != now[key]
    ]
    # A digest: it tells that they differ, not in what. Another rung says so already.
    if planned.get("features") != now["features"] and planned.get("isa") == now["isa"]:
        found.append(f"{name}: its CPU flags are no longer those that the plan was made for.")
    return found + _python_difference(name, planned.get("python"), facts)


def _python_difference(name: str, planned: Any, facts: Facts) -> list[str]:
    if not planned:
        return []
    path, tag = planned
    tags = {python.path: python.tag for python in facts.pythons}
    if path not in tags:
        return [f"{name}: the interpreter {path} was there when the plan was made and is gone now."]
    if tags[path] != tag:
        return [f"{name}: {path} was {tag} when the plan was made and is {tags[path]} now."]
    return []


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "unknown" if value is None else str(value)
