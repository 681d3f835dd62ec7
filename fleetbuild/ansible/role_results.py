"""Results that roles report and reasons why tasks failed. Nodes send them, so each is validated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

# What can be shown to people and counted with: no infinity, and nothing of three hundred digits.
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]

# The facts that playbooks/README.md promises.
_FACTS: dict[str, Literal["build", "install", "verify"]] = {
    "build_wheel_result": "build",
    "install_wheel_result": "install",
    "verify_wheel_result": "verify",
}
_HELD_UP = (
    "See what holds it up there (disk, network file system, memory), then run the same command"
    " again."
)


class RoleResult(BaseModel):
    """A role's result, or a task's failure; fields that it does not set are empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    of: Literal["build", "install", "verify", "failure"]
    ok: bool
    key: str = ""
    file: str | None = None
    sha256: str | None = None
    seconds: Seconds | None = None
    cached: bool = False
    active: bool = False
    release_id: str | None = None
    output: str = ""
    reason: str = ""
    fix: str = ""
    log: str | None = None


class BuildProgress(BaseModel):
    """How far a build is, as its node says."""

    done: Count | None = None
    total: Count | None = None
    last_line: str = ""


def role_result_of(event: TaskEvent) -> RoleResult | None:
    """The reply that an event carries, or None."""
    if event.state == "failed":
        fix = _HELD_UP if "timedout" in event.result else event.result.get("fix")
        return RoleResult(
            of="failure", ok=False, reason=event.message, fix=fix if isinstance(fix, str) else ""
        )
    facts: Any = event.result.get("ansible_facts")
    if not isinstance(facts, dict):
        return None
    told = ((kind, facts[name]) for name, kind in _FACTS.items() if name in facts)
    return next((_read(kind, said) for kind, said in told if isinstance(said, dict)), None)


def build_progress_of(event: TaskEvent) -> BuildProgress | None:
    """What an event says of a build that goes on, or None."""
    try:
        return BuildProgress.model_validate(event.result.get("progress"))
    except ValidationError:
        return None


def _read(kind: Literal["build", "install", "verify"], said: dict[str, Any]) -> RoleResult:
    # Ansible leaves out what is not, or says it as an empty text; both are "not there".
    known = {key: value for key, value in said.items() if value not in (None, "")}
    try:
        return RoleResult.model_validate({**known, "of": kind})
    except ValidationError:
        return RoleResult(
            of=kind, ok=False, key=str(said.get("key", "")), reason="Its answer makes no sense."
        )


def more_severe(before: RoleResult | None, now: RoleResult) -> RoleResult:
    """The later reply, unless it is only the failure that a role ends with after its result."""
    return before if before and not before.ok and now.of == "failure" else now


def failure_reason(reply: RoleResult) -> str:
    """The reason, and the end of the traceback where it does not say that already."""
    last = next(reversed(reply.output.strip().splitlines()), "")[:500]
    return reply.reason if last in reply.reason else f"{reply.reason} {last}".strip()
