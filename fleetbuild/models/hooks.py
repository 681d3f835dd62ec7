"""Calls of hooks around the switch of nodes, and their failures."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen
from fleetbuild.models.config import Hook

HookName = Literal["before", "after"]


class SwitchingNode(Frozen):
    """What a hook may want to know of a node."""

    group: str
    release_id: str
    kubernetes_node: str


class HookCall(Frozen):
    """A hook to run for the nodes of one step."""

    name: HookName
    hook: Hook
    release: str
    nodes: dict[str, SwitchingNode]


class HookFailure(Frozen):
    """Why a hook failed for a node."""

    reason: str
    log: str | None = None  # the file with its output
