"""Known failures: turn the output of a compiler or a release into a reason and a fix.

In: text from a node. Out: reason and fix. The table belongs to the role verify_wheel, which uses it
on the nodes; this module uses it for builds. The text is bounded and never becomes a template.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

import yaml

from fleetbuild.ansible import ansible_dir
from fleetbuild.models import Target
from fleetbuild.models.problem import Problem

_TABLE = "roles/verify_wheel/vars/main/known_failures.yml"
_LONGEST = 1 << 16  # characters from the end: a compiler prints its error last


class _KnownFailure(NamedTuple):
    during: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    says: str
    fix: str


def explain_failure(
    text: str,
    node: str,
    group: str,
    target: Target,
    *,
    during: Literal["run", "build"] = "build",
) -> Problem:
    """Return the problem behind a failure. An unknown text is its own reason, without a fix."""
    text = text[-_LONGEST:]
    known = {"node": node, "group": group, "isa": target.isa, "sms": _sms(target)}
    for failure in _known_failures():
        if during not in failure.during:
            continue
        for pattern in failure.patterns:
            if match := pattern.search(text):
                found = next(filter(None, match.groups()), "")
                return Problem(
                    failure.says.format("", found, **known),
                    failure.fix.format("", found, **known),
                )
    return Problem(text)


def _sms(target: Target) -> str:
    return "SM " + ", ".join(target.sms) if target.sms else "no GPU"


@cache
def _known_failures() -> tuple[_KnownFailure, ...]:
    document = yaml.safe_load((ansible_dir() / _TABLE).read_text("utf-8"))
    return tuple(
        _KnownFailure(
            frozenset(row["during"]),
            tuple(re.compile(pattern, re.MULTILINE) for pattern in row.get("patterns", ())),
            row["says"],
            row["fix"],
        )
        for row in document["verify_wheel_known_failures"]
    )
