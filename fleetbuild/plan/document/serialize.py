"""Write a plan as JSON, with a digest, and read it back.

In: a `Plan` or a text. Out: stable text, or the `Plan`. A text that was edited, or that a newer
fleetbuild wrote, is refused.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from fleetbuild.errors import PlanFileError
from fleetbuild.models import FORMAT_VERSION, Plan
from fleetbuild.models.digest import digest

_AGAIN = "Make a new one with: fleetbuild plan INVENTORY"


def with_digest(plan: Plan) -> Plan:
    """Return the plan with its digest."""
    return plan.model_copy(update={"digest": _digest(plan.model_dump(mode="json"))})


def dump_plan(plan: Plan) -> str:
    """Return the text of a plan: the same plan gives the same text."""
    return plan.model_dump_json(indent=2) + "\n"


def read_plan(text: str, source: str = "The plan") -> Plan:
    """Return the plan in this text; refuse a text that is not a plan or was edited."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        deep = isinstance(problem, RecursionError)
        why = "it is nested too deeply" if deep else f"it is not JSON ({problem})"
        raise PlanFileError(f"{source} is not a plan: {why}.", _AGAIN) from None
    if not isinstance(data, dict) or not {"format_version", "digest", "groups"} <= data.keys():
        raise PlanFileError(f"{source} is JSON, but not a plan of fleetbuild.", _AGAIN)
    _refuse_newer(data["format_version"], source)
    if data["digest"] != _digest(data):
        raise PlanFileError(
            f"{source} is damaged or was edited: its content does not match its digest. "
            "A plan is applied exactly as it was made, or not at all.",
            _AGAIN,
        )
    try:
        # Pydantic's own JSON parser would read the text a second time.
        return Plan.model_validate(data)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise PlanFileError(
            f"{source} is not a plan that this version can read: {place}: {first['msg']}.", _AGAIN
        ) from None


def _refuse_newer(version: Any, source: str) -> None:
    ours = int(FORMAT_VERSION.split(".")[0])
    try:
        theirs = int(str(version).split(".")[0])
    except ValueError:
        raise PlanFileError(
            f"{source} is not a plan: its format version is {version!r}.", _AGAIN
        ) from None
    if theirs > ours:
        raise PlanFileError(
            f"{source} has format {version}, which is newer than this fleetbuild reads "
            f"({FORMAT_VERSION}).",
            "Update fleetbuild (pip install -U fleetbuild), or make a new plan with this version.",
        )


def _digest(data: dict[str, Any]) -> str:
    try:
        return digest({**data, "digest": ""})
    except (ValueError, RecursionError):
        return ""
