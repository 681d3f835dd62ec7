"""Compare the labels of a Node with the ones of its release and its hardware.

In: a node's status and its labels in the cluster. Out: the status, with the labels that are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetbuild.kubernetes.labels.labeller import LabelTargets
from fleetbuild.kubernetes.labels.release_labels import (
    is_hardware_label,
    is_label_of,
    served_labels,
)
from fleetbuild.models import Manifest, NodeStatus


def with_labels(
    status: NodeStatus,
    labels: Mapping[str, str] | None,
    current: Manifest | None,
    names: LabelTargets,
) -> NodeStatus:
    """Add to a status whether the Node's labels are right; `labels` is None without a Node."""
    if labels is None:
        called = names.in_cluster(status.node)
        return status.model_copy(
            update={"labels": "no_node", "labels_sentence": f"The cluster has no Node {called}."}
        )
    if status.state != "ok":
        return status
    wanted = dict(names.hardware.get(status.node, {}))
    if current and current.verified:
        wanted |= served_labels(current, names.domain)
    present = {
        key: value
        for key, value in labels.items()
        if key in wanted
        or is_label_of(key, names.release, names.domain)
        or (status.node in names.hardware and is_hardware_label(key, names.release, names.domain))
    }
    wrong = [
        _difference(key, present.get(key), wanted.get(key))
        for key in sorted(present.keys() | wanted.keys())
        if present.get(key) != wanted.get(key)
    ]
    return status.model_copy(
        update={
            "labels": "wrong" if wrong else "right",
            "labels_sentence": f"Labels: {'; '.join(wrong)}." if wrong else "",
        }
    )


def _difference(key: str, found: str | None, wanted: str | None) -> str:
    if wanted is None:
        return f"{key} is {found} but should not be set"
    return f"{key} is {found or 'missing'} but should be {wanted}"


def status_without_host(
    node: str, labels: Mapping[str, str], names: LabelTargets
) -> NodeStatus | None:
    """Return the status of a Node without a host if it has labels of this release."""
    ours = [key for key in sorted(labels) if is_label_of(key, names.release, names.domain)]
    if not ours:
        return None
    removal = " ".join(f"{key}-" for key in ours)
    return NodeStatus(
        node=node,
        state="unknown",
        reason="It is a Node of the cluster, but not a host of the inventory.",
        labels="no_host",
        labels_sentence="Pods that mount the release are still scheduled there. Remove its labels:"
        f" kubectl label node {node} {removal}",
    )
