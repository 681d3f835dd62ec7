"""What a node's task replied: a build, a release, a verification, or why it failed.

In: task events; their content comes from nodes, so it is validated. Out: a reply of one of four
types, and the progress of a build.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetbuild.models.result import KeptRelease

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

# Bounded numbers: no infinity, and no number of three hundred digits.
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]
# NAME==VERSION: these words are shown as ours.
_PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*$"

_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
FULL_FIX = "Free space on the node (df -h shows where), then run the same command again."
_TIMED_OUT_FIX = (
    "Find out what blocks it on the node (disk, network file system, memory), then run the same"
    " command again."
)


class Reply(BaseModel):
    """The end of a task on a node; unset fields are empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool
    reason: str = ""
    fix: str = ""


class BuildReply(Reply):
    """A wheel that a node built, or why it did not."""

    key: str = ""
    file: str | None = None
    sha256: str | None = None
    seconds: Seconds | None = None
    cached: bool = False
    kind: Literal["", "machine", "code", "input"] = ""  # what made a build fail


class ReleaseReply(Reply):
    """The releases of a node after an install, a switch or a removal."""

    active: bool = False
    release_id: str | None = None
    packages: Annotated[
        tuple[Annotated[str, Field(max_length=200, pattern=_PACKAGE)], ...], Field(max_length=1000)
    ] = ()
    pruned: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    kept: Annotated[tuple[KeptRelease, ...], Field(max_length=1000)] = ()


class VerifyReply(Reply):
    """Whether a release works. It does not serve yet, or not at all, if it was just installed."""

    release_id: str | None = None
    damaged: bool = False
    output: str = ""

    @property
    def why(self) -> str:
        """The reason, with the last line of the output if the reason lacks it."""
        last = next(reversed(self.output.strip().splitlines()), "")[:500]
        return self.reason if last in self.reason else f"{self.reason} {last}".strip()


class Failure(Reply):
    """A task that failed."""

    ok: bool = False
    advice: str = ""  # which sentence of plugin_utils/advice.py the fix is


AnyReply = TypeVar("AnyReply", bound=Reply)
# The facts that playbooks/README.md promises.
_FACTS: dict[str, type[Reply]] = {
    "build_wheel_result": BuildReply,
    "verify_wheel_result": VerifyReply,
}


class BuildProgress(BaseModel):
    """Progress of a build as its node reports it."""

    done: Count | None = None
    total: Count | None = None
    steps: Count | None = None  # calls of a compiler so far, which also builds without [n/m] count
    last_line: str = ""


def is_disk_full(text: str) -> bool:
    """Return whether a node says that its disk or the user's quota is full."""
    return _FULL.search(text) is not None


def reply_in(event: TaskEvent) -> Reply | None:
    """Return the reply in an event, or None."""
    verification = event.result.get("verification")
    if isinstance(verification, dict) and not (
        event.result.get("active") is True and verification.get("ok") is True
    ):
        return _read(VerifyReply, verification)
    if event.state in ("ok", "changed") and "active" in event.result:
        return _read(ReleaseReply, event.result)
    if event.state == "failed":
        return _failure(event)
    facts: Any = event.result.get("ansible_facts")
    if not isinstance(facts, dict):
        return None
    found = ((kind, facts[name]) for name, kind in _FACTS.items() if name in facts)
    return next((_read(kind, values) for kind, values in found if isinstance(values, dict)), None)


def _failure(event: TaskEvent) -> Failure:
    fix = _TIMED_OUT_FIX if "timedout" in event.result else event.result.get("fix")
    fix, reason = fix if isinstance(fix, str) else "", event.message
    if is_disk_full(reason) and not fix:
        reason, fix = f"The disk is full: {reason}", FULL_FIX
    return Failure(reason=reason, fix=fix, advice=str(event.result.get("advice") or ""))


def build_progress_of(event: TaskEvent) -> BuildProgress | None:
    """Return the progress of a running build in an event, or None."""
    try:
        return BuildProgress.model_validate(event.result.get("progress"))
    except ValidationError:
        return None


def _read(kind: type[AnyReply], values: dict[str, Any]) -> AnyReply:
    # Ansible omits a missing value or sends it as an empty text; both mean "not set".
    present = {key: value for key, value in values.items() if value not in (None, "")}
    try:
        return kind.model_validate(present)
    except ValidationError:
        bad = {"ok": False, "key": str(values.get("key", ""))}
        return kind.model_validate({**bad, "reason": "The node returned a malformed result."})


def more_severe(before: Reply | None, now: Reply) -> Reply:
    """Return the later reply, unless it only repeats a failed result as a task failure."""
    return before if before and not before.ok and isinstance(now, Failure) else now
