"""What runs on a node, against what the last apply left there."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen

Drift = Literal["none", "missing", "changed", "different"]


class NodeStatus(Frozen):
    """One node. `drift` is None where nothing is known to compare."""

    node: str
    state: Literal["ok", "unreachable", "unsupported", "skipped", "unknown"]
    reason: str | None = None  # why it is not ok
    fix: str | None = None  # what to do about it
    group: str | None = None
    release_id: str | None = None  # what is current there
    verified: bool = False
    packages: tuple[str, ...] = ()  # name==version of the wheels that were built for it
    drift: Drift | None = None
    sentence: str = ""  # the drift in words
    # What its labels in the cluster are; None where no cluster was asked, or nothing to compare.
    labels: Literal["right", "wrong", "no_node", "no_host"] | None = None
    labels_sentence: str = ""  # what is wrong with them, in words
    probed: str | None = None  # when its facts were read: ISO 8601, UTC
