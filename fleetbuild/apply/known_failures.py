"""Known failures: what a compiler or a release said, as a sentence that says what to do.

The table lies in the role verify_wheel, which explains by it what it sees on nodes; here it
explains what builders say. Texts come from nodes: they are bounded, and never become templates.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

import yaml

from fleetbuild.ansible import ansible_dir
from fleetbuild.models import Target

_TABLE = "roles/verify_wheel/vars/main/ailments.yml"
_LONGEST = 1 << 16  # of the end of a text; an error stands where a compiler stopped


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
) -> tuple[str, str]:
    """What a failure means and what to do: (reason, fix). A text that nobody knows stays as it is,
    and then there is no fix.
    """
    text = text[-_LONGEST:]
    known = {"node": node, "group": group, "isa": target.isa, "sms": _sms(target)}
    for ailment in _known_failures():
        if during not in ailment.during:
            continue
        for pattern in ailment.patterns:
            if match := pattern.search(text):
                found = next(filter(None, match.groups()), "")
                return (
                    ailment.says.format("", found, **known),
                    ailment.fix.format("", found, **known),
                )
    return text, ""


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
        for row in document["verify_wheel_ailments"]
    )
