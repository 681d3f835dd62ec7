"""Role results and reasons of failed tasks.

In: task events; their content comes from nodes, so it is validated. Out: `RoleResult`s.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetbuild.models.result import KeptRelease

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

# Bounded numbers: no infinity, and no number of three hundred digits.
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]
# NAME==VERSION: these words are shown as ours.
_PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*$"

# The facts that playbooks/README.md promises; install_wheel_result is also a module's reply.
_FACTS: dict[str, Literal["build", "install", "verify"]] = {
    "build_wheel_result": "build",
    "install_wheel_result": "install",
    "verify_wheel_result": "verify",
}
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
FULL_FIX = "Free space on the node (df -h shows where), then run the same command again."
_TIMED_OUT_FIX = (
    "Find out what blocks it on the node (disk, network file system, memory), then run the same"
    " command again."
)


class RoleResult(BaseModel):
    """A role's result, or a task's failure; unset fields are empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    of: Literal["build", "install", "verify", "failure"]
    ok: bool
    key: str = ""
    file: str | None = None
    sha256: str | None = None
    seconds: Seconds | None = None
    cached: bool = False
    isolation: Literal["container", "namespaces", "user", "none"] | None = None
    active: bool = False
    release_id: str | None = None
    packages: Annotated[
        tuple[Annotated[str, Field(max_length=200, pattern=_PACKAGE)], ...], Field(max_length=1000)
    ] = ()
    damaged: bool = False
    output: str = ""
    reason: str = ""
    fix: str = ""
    advice: str = ""  # which sentence of plugin_utils/advice.py the fix is
    kind: Literal["", "machine", "code", "input"] = ""  # what made a build fail
    log: str | None = None
    pruned: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    kept: Annotated[tuple[KeptRelease, ...], Field(max_length=1000)] = ()


class BuildProgress(BaseModel):
    """Progress of a build as its node reports it."""

    done: Count | None = None
    total: Count | None = None
    steps: Count | None = None  # calls of a compiler so far, which also builds without [n/m] count
    last_line: str = ""


def is_disk_full(text: str) -> bool:
    """Return whether a node says that its disk or the user's quota is full."""
    return _FULL.search(text) is not None


def role_result_of(event: TaskEvent) -> RoleResult | None:
    """Return the role result or failure in an event, or None.

    A release that was verified and does not serve yet, or not at all, is a result of `verify`.
    """
    verification = event.result.get("verification")
    if isinstance(verification, dict) and not (
        event.result.get("active") is True and verification.get("ok") is True
    ):
        return _read("verify", verification)
    if event.state in ("ok", "changed") and "active" in event.result:
        return _read("install", event.result)
    if event.state == "failed":
        fix = _TIMED_OUT_FIX if "timedout" in event.result else event.result.get("fix")
        fix, reason = fix if isinstance(fix, str) else "", event.message
        advice = str(event.result.get("advice") or "")
        if is_disk_full(reason) and not fix:
            reason, fix = f"The disk is full: {reason}", FULL_FIX
        return RoleResult(of="failure", ok=False, reason=reason, fix=fix, advice=advice)
    facts: Any = event.result.get("ansible_facts")
    if not isinstance(facts, dict):
        return None
    results = ((kind, facts[name]) for name, kind in _FACTS.items() if name in facts)
    return next((_read(kind, values) for kind, values in results if isinstance(values, dict)), None)


def build_progress_of(event: TaskEvent) -> BuildProgress | None:
    """Return the progress of a running build in an event, or None."""
    try:
        return BuildProgress.model_validate(event.result.get("progress"))
    except ValidationError:
        return None


def _read(kind: Literal["build", "install", "verify"], values: dict[str, Any]) -> RoleResult:
    # Ansible omits a missing value or sends it as an empty text; both mean "not set".
    present = {key: value for key, value in values.items() if value not in (None, "")}
    try:
        return RoleResult.model_validate({**present, "of": kind})
    except ValidationError:
        return RoleResult(
            of=kind,
            ok=False,
            key=str(values.get("key", "")),
            reason="The node returned a malformed result.",
        )


def more_severe(before: RoleResult | None, now: RoleResult) -> RoleResult:
    """Return the later reply, unless it only repeats a failed result as a task failure."""
    return before if before and not before.ok and now.of == "failure" else now


def failure_reason(reply: RoleResult) -> str:
    """Return the reason, with the last line of the output if the reason lacks it."""
    last = next(reversed(reply.output.strip().splitlines()), "")[:500]
    return reply.reason if last in reply.reason else f"{reply.reason} {last}".strip()
