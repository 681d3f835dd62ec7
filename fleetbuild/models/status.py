"""Status: what serves on a node, compared with what the last apply left there."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen

Drift = Literal["none", "missing", "changed", "different", "damaged", "revoked"]


class NodeStatus(Frozen):
    """The status of one node. `drift` is None if there is nothing to compare."""

    node: str
    state: Literal["ok", "unreachable", "unsupported", "skipped", "unknown"]
    reason: str | None = None  # why it is not ok
    fix: str | None = None  # what to do about it
    group: str | None = None
    release_id: str | None = None  # the current release
    previous: str | None = None  # the release that a rollback would switch to
    verified: bool = False
    packages: tuple[str, ...] = ()  # name==version of the wheels that were built for it
    drift: Drift | None = None
    sentence: str = ""  # the drift as a sentence
    # Its labels in the cluster; None if no cluster was asked, or there is nothing to compare.
    labels: Literal["right", "wrong", "no_node", "no_host"] | None = None
    labels_sentence: str = ""  # the problems of the labels
    probed: str | None = None  # when its facts were read: ISO 8601, UTC
