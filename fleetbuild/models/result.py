"""Results of an apply, a verify or a rollback, by node and by wheel; and the status of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from fleetbuild.errors import worst
from fleetbuild.models._base import Frozen

Drift = Literal["none", "missing", "changed", "different", "damaged", "revoked"]


class KeptRelease(Frozen):
    """An old release that was not removed: it is mounted or in use, or the disk refused it."""

    release_id: str = Field(max_length=100)
    reason: str = Field(max_length=1000)


class NodeResult(Frozen):
    """The result of one node."""

    node: str
    group: str | None = None
    state: Literal[
        "installed", "up_to_date", "verified", "rolled_back", "removed",
        "unreachable", "blocked", "skipped",
        "build_failed", "install_failed", "verify_failed", "not_reached",
    ]  # fmt: skip
    release_id: str | None = None
    reason: str | None = None
    fix: str | None = None
    log: str | None = None  # what Ansible printed in the run that failed
    kept: tuple[KeptRelease, ...] = ()
    hook_failed: bool = False  # rollout.after failed, so the node may still be drained
    held: bool = False  # another controller is changing it; this run changed nothing there
    damaged: bool = False  # whether its release is damaged or lost, so that it must be reinstalled


class FailedBuild(Frozen):
    """A builder whose machine failed, so that the next fallback built."""

    node: str
    reason: str


class WheelResult(Frozen):
    """The result of one wheel."""

    package: str
    wheel_version: str
    artifact_key: str
    state: Literal["built", "reused", "failed", "refused"]  # refused: by the audit
    built_on: str | None = None
    failed_on: tuple[FailedBuild, ...] = ()  # builders that failed before, in order
    file: str | None = None
    sha256: str | None = None
    seconds: float | None = None
    cached: bool = False  # built on that node by an earlier run, in `seconds`
    reason: str | None = None
    fix: str | None = None
    log: str | None = None  # the controller's copy of the build log


class LabelResult(Frozen):
    """The result of labelling one node in the cluster."""

    node: str  # name in the inventory, else in the cluster
    kubernetes_node: str
    state: Literal[
        "labelled", "unchanged",
        "no_node",  # the host is not a Node of the cluster
        "gone",  # deleted, or replaced by another of its name, while it was labelled
        "conflict",  # another field manager has set one of our labels to another value
        "kept",  # a stale label remains, since another field manager has set it too
        "forbidden", "unauthorized", "refused", "unreachable", "failed",
    ]  # fmt: skip
    labels: dict[str, str] = {}  # our labels that the node has now, if it was labelled
    reason: str | None = None
    fix: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the labels are right, or the node is not in the cluster."""
        return self.state in ("labelled", "unchanged", "no_node")


_LABEL_CODES = {
    "unreachable": 3,
    "unauthorized": 3,
    "gone": 3,
    "conflict": 4,
    "kept": 4,
    "forbidden": 4,
    "refused": 4,
    "failed": 6,
}
_NODE_CODES = {
    "unreachable": 3,
    "blocked": 4,
    "build_failed": 5,
    "install_failed": 6,
    "verify_failed": 7,
}
_VERIFIED = ("installed", "up_to_date", "verified")
_WHEEL_CODES = {"failed": 5, "refused": 7}


class Result(Frozen):
    """What a run did."""

    plan_digest: str
    wheels: tuple[WheelResult, ...] = ()
    nodes: tuple[NodeResult, ...] = ()
    manifests: tuple[str, ...] = ()  # files written
    labels: tuple[LabelResult, ...] = ()  # unless labels are only written to files
    changed: bool = False
    seconds: float = 0

    @property
    def verified(self) -> frozenset[str]:
        """The nodes whose current release was verified."""
        return frozenset(node.node for node in self.nodes if node.state in _VERIFIED)

    @property
    def exit_code(self) -> int:
        """0, or the most serious exit code."""
        codes = [_NODE_CODES.get(node.state, 0) for node in self.nodes]
        codes += [6 for node in self.nodes if node.hook_failed]
        codes += [_WHEEL_CODES.get(wheel.state, 0) for wheel in self.wheels]
        codes += [label_code(self.labels)]
        return worst(codes)


def label_code(results: Iterable[LabelResult]) -> int:
    """Return the exit code for these results."""
    return worst([_LABEL_CODES.get(result.state, 0) for result in results])


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
    signed_by: str | None = None  # the allowed signer of the release, on nodes that require one
    packages: tuple[str, ...] = ()  # name==version of the wheels that were built for it
    drift: Drift | None = None
    sentence: str = ""  # the drift as a sentence
    # Its labels in the cluster; None if no cluster was asked, or there is nothing to compare.
    labels: Literal["right", "wrong", "no_node", "no_host"] | None = None
    labels_sentence: str = ""  # the problems of the labels
    labels_fix: str = Field("", exclude=True)  # the command that sets wrong labels right
    probed: str | None = None  # when its facts were read: ISO 8601, UTC
