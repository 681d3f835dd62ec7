"""Events: what happens during a run, passed to a callback as it happens."""

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
    """Return the time as all files of fleetbuild write it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec=precision)


class Event(Frozen):
    """A step of a group or node that started, progressed or ended."""

    time: str = Field(default_factory=now)
    stage: Stage
    state: Literal[
        "started", "progress", "waiting", "ok", "failed", "skipped", "unreachable", "warning"
    ]  # waiting: a node has been at the same step for `seconds`
    group: str | None = None
    node: str | None = None
    nodes: tuple[str, ...] | None = None  # at work, or for which the step ended well
    package: str | None = None
    message: str = ""  # a failure's further lines are what a program printed
    fix: str = ""
    log: str | None = None  # the file that says more about a failure
    done: int | None = None  # steps of a compiler, files or nodes; of `total` if that is known
    total: int | None = None
    seconds: float | None = None


OnEvent = Callable[[Event], None]


def ignore(_: Event) -> None:
    """Do nothing: the default callback."""
