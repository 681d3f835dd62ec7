"""Calls of hooks around the switch of a node, and their failures."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen
from fleetbuild.models.config import Hook

HookName = Literal["before", "after"]


class HookCall(Frozen):
    """A hook to run for some nodes of one group."""

    name: HookName
    hook: Hook
    group: str
    release: str
    release_id: str
    nodes: dict[str, str]  # node -> its name in Kubernetes

    @property
    def too_late(self) -> str:
        """Why it failed, if it did not end in time."""
        return f"it did not end within {self.hook.timeout} s"


class HookFailure(Frozen):
    """Why a hook failed for a node."""

    reason: str
    log: str | None = None  # the file with its output
