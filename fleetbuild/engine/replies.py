"""What playbooks say at their end. It comes from nodes, so every field is doubted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

RESULT_TASK = "fleetbuild result"


class Reply(BaseModel):
    """`fleetbuild_result` of playbooks/README.md; fields that a playbook does not set are empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool
    key: str = ""
    file: str | None = None
    sha256: str | None = None
    seconds: float | None = None
    cached: bool = False
    changed: bool = True
    release_id: str | None = None
    previous: str | None = None
    step: str = ""
    output: str = ""
    reason: str = ""
    fix: str = ""
    log: str | None = None


def reply_of(event: TaskEvent) -> Reply | None:
    """The reply that an event carries, or None."""
    facts: Any = event.result.get("ansible_facts")
    if not event.task.endswith(RESULT_TASK) or not isinstance(facts, dict):
        return None
    said = facts.get("fleetbuild_result")
    if not isinstance(said, dict):
        return None
    # Ansible leaves out what is not, or says it as an empty string; both are "not there".
    known = {key: value for key, value in said.items() if value not in (None, "")}
    try:
        return Reply.model_validate(known)
    except ValidationError:
        return Reply(ok=False, key=str(said.get("key", "")), reason="its answer makes no sense")
