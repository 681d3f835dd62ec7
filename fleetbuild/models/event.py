"""What happens during a run, told through a callback as it happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from fleetbuild.models._base import Frozen

Stage = Literal[
    "inventory", "probe", "plan", "check", "toolchain", "build", "fetch", "audit",
    "distribute", "install", "verify", "activate", "label", "manifests", "done",
]  # fmt: skip


def now(precision: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """The time as all our files have it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec=precision)


class Event(Frozen):
    """One step of one group or node: started, went on, ended."""

    time: str = Field(default_factory=now)
    stage: Stage
    state: Literal[
        "started", "progress", "waiting", "ok", "failed", "skipped", "unreachable", "warning"
    ]  # waiting: a node has said nothing for `seconds`
    group: str | None = None
    node: str | None = None
    package: str | None = None
    message: str = ""
    fix: str = ""
    done: int | None = None  # the [n/m] of a compiler or of nodes
    total: int | None = None
    seconds: float | None = None


OnEvent = Callable[[Event], None]


def ignore(_: Event) -> None:
    """The callback of those who do not listen."""
