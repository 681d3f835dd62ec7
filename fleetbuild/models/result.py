"""What an apply, a verify or a rollback did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fleetbuild.errors import worst
from fleetbuild.models._base import Frozen


class NodeResult(Frozen):
    """How one node ended."""

    node: str
    group: str | None = None
    state: Literal[
        "installed", "up_to_date", "verified", "rolled_back",
        "unreachable", "blocked", "skipped",
        "build_failed", "install_failed", "verify_failed", "not_reached",
    ]  # fmt: skip
    release_id: str | None = None
    reason: str | None = None
    fix: str | None = None


class WheelResult(Frozen):
    """A wheel that was built, reused, or not."""

    package: str
    wheel_version: str
    artifact_key: str
    state: Literal["built", "reused", "failed", "refused"]  # refused: by the audit
    built_on: str | None = None
    file: str | None = None
    sha256: str | None = None
    seconds: float | None = None
    cached: bool = False  # an earlier run had built it on that node; `seconds` is what that took
    reason: str | None = None
    fix: str | None = None
    log: str | None = None  # the controller's copy of the build log


class LabelResult(Frozen):
    """How the labelling of one node in the cluster ended."""

    node: str  # in the inventory; in the cluster where it has no host
    kubernetes_node: str
    state: Literal[
        "labelled", "unchanged",
        "no_node",  # a host that is no Node of the cluster
        "gone",  # deleted, or replaced by another of its name, while it was labelled
        "conflict",  # a label of ours has another value, and another owner
        "kept",  # a label that should go stays, for it has another owner too
        "forbidden", "unauthorized", "refused", "unreachable", "failed",
    ]  # fmt: skip
    labels: dict[str, str] = {}  # those of ours that it has now, where it was labelled
    reason: str | None = None
    fix: str | None = None

    @property
    def well(self) -> bool:
        """Is it as it should be, as far as the cluster knows it?"""
        return self.state in ("labelled", "unchanged", "no_node")


class Labelled(Frozen):
    """What was labelled in a cluster, and which Nodes of it no host is meant by."""

    nodes: tuple[LabelResult, ...] = ()
    strangers: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # how hosts were told from their names

    @property
    def exit_code(self) -> int:
        """0, or the code of what stopped the most."""
        return label_code(self.nodes)


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
    """What a run did, node by node and wheel by wheel."""

    plan_digest: str
    wheels: tuple[WheelResult, ...] = ()
    nodes: tuple[NodeResult, ...] = ()
    manifests: tuple[str, ...] = ()  # files written
    labels: tuple[LabelResult, ...] = ()  # where labels are more than files
    changed: bool = False
    seconds: float = 0

    @property
    def verified(self) -> frozenset[str]:
        """The nodes that were seen to work with what serves there now."""
        return frozenset(node.node for node in self.nodes if node.state in _VERIFIED)

    @property
    def exit_code(self) -> int:
        """0, or the code of what stopped the most."""
        codes = [_NODE_CODES.get(node.state, 0) for node in self.nodes]
        codes += [_WHEEL_CODES.get(wheel.state, 0) for wheel in self.wheels]
        codes += [label_code(self.labels)]
        return worst(codes)


def label_code(results: Iterable[LabelResult]) -> int:
    """The exit code for how labelling ended."""
    return worst([_LABEL_CODES.get(result.state, 0) for result in results])
