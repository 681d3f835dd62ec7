"""Why a build failed: by its machine, its code or its inputs; and what to do.

In: replies, logs and text from a node. Out: reasons and fixes. A build that failed by its machine
goes to the next fallback; one that failed by its code would fail on every node. The collection has
the table of known failures, which nodes use as well. The text is bounded and never becomes a
template.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import yaml

from fleetbuild.ansible import ansible_dir
from fleetbuild.ansible.role_results import BuildReply, Failure, is_disk_full
from fleetbuild.ansible.silent_nodes import describe_loss, fix_of, is_lost
from fleetbuild.apply.pending import BuildAssignment
from fleetbuild.models import Target
from fleetbuild.models.problem import Problem

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun

# What gcc says. A compiler that crashes by a fault of its own does so on every node; gcc tries
# again, and says so if the fault does not repeat.
_COMPILER_HIT = re.compile(r"signal terminated program|likely a hardware or OS problem")
_TABLE = "plugins/plugin_utils/known_failures.yml"
_LONGEST = 1 << 16  # characters from the end: a compiler prints its error last


def machine_failure(reply: BuildReply, log: Path) -> str | None:
    """Return why the machine made this build fail; None if the build's code or inputs did."""
    lines = f"{reply.reason}\n{end_of(log)}".splitlines()
    if full := next(filter(is_disk_full, lines), None):
        return f"Its disk is full: {full.strip()[:300]}"
    by_machine = reply.kind == "machine" or any(map(_COMPILER_HIT.search, lines))
    return lines[0] if by_machine else None


def failure_before_reply(host: HostRun | None, failure: Failure | None) -> str | None:
    """Return why a machine ended before its build did; None if the playbook ended well there."""
    if host is None or host.state == "ok":
        return None
    if is_lost(host):
        return f"{describe_loss(host)}."
    reason = (failure.reason if failure else "") or host.message
    return reason.partition("\n")[0] or "Ansible stopped there without giving a reason."


def reason_without_reply(
    node: str,
    host: HostRun | None,
    failure: Failure | None,
    first_failure: tuple[str, BuildReply] | None,
) -> dict[str, str]:
    """Return reason and fix for a build without a reply.

    `first_failure` is the first package that failed on this node, and its reply.
    """
    if host and is_lost(host):
        return {
            "reason": f"{node}: {describe_loss(host)}.",
            "fix": "Once it answers, apply again: the build continues there.",
        }
    if first_failure:
        package, why = first_failure
        return {
            "reason": f"Not started: {package}, which is built before it on {node}, failed.",
            "fix": why.fix or f"Read the log of {package}, fix the error, then apply again.",
        }
    reason = (failure.reason if failure else "") or (host.message if host else "")
    return {
        "reason": f"{node} stopped before the build: {reason or 'no reason given'}",
        "fix": (failure.fix if failure else "")
        or fix_of(reason)
        or f"Fix the error on {node}, then apply again.",
    }


def explain_reply(assignment: BuildAssignment, reply: BuildReply, log: Path) -> BuildReply:
    """Add reason and fix of a known failure to a reply that has no fix."""
    if reply.ok or reply.fix:
        return reply
    where = assignment.node, assignment.group, assignment.wheel.target
    for text in (reply.reason, end_of(log)):
        reason, fix = explain_failure(text, *where)
        if fix:
            errors = reply.reason.partition("\n")[2]
            reason = f"{reason}\n{errors}".strip()
            return reply.model_copy(update={"reason": reason, "fix": fix})
    return reply


def end_of(log: Path) -> str:
    """Return the last 64 KiB of a build's log, empty if the log did not arrive."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (1 << 16)))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


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
    about = {"node": node, "group": group, "isa": target.isa, "sms": _sms(target)}
    for failure in _known_failures():
        if during not in failure.during:
            continue
        for pattern in failure.patterns:
            if match := pattern.search(text):
                part = next(filter(None, match.groups()), "")
                return Problem(
                    failure.says.format("", part, **about),
                    failure.fix.format("", part, **about),
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
        for row in document["known_failures"]
    )
