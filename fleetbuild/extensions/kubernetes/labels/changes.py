"""What changed on a cluster's Nodes since they were last labelled, as events and as metrics.

In: the Nodes before a labelling, its results, and what the previous one left. Out: changes, a text
for Prometheus, and what the next labelling has to know. Nodes that joined, left, were labelled by
somebody else or have another class are changes; a Node that stayed as it was is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.extensions.kubernetes.api.events import NodeEvent
from fleetbuild.extensions.kubernetes.api.nodes import ClusterNode
from fleetbuild.extensions.kubernetes.labels.apply import Labelling
from fleetbuild.extensions.kubernetes.labels.node_labels import label_key
from fleetbuild.extensions.kubernetes.labels.release_labels import is_hardware_label
from fleetbuild.models._base import Frozen
from fleetbuild.models.result import LabelResult

REASONS = ("Labelled", "ClassChanged", "LabelsRestored", "LabelsRefused", "NodeLeft")
_PER_NODE = ("conflict", "kept", "refused")  # other failures are the login's or the server's


class KnownNode(Frozen):
    """A Node as the last labelling left it."""

    uid: str
    labels: dict[str, str]  # of its hardware
    problem: str = ""


class KnownNodes(Frozen):
    """What the last labelling left in a cluster."""

    server: str = ""
    nodes: dict[str, KnownNode] = {}
    counts: dict[str, int] = {}  # of all changes so far, by reason


def read_known(file: Path, server: str) -> KnownNodes:
    """Return the Nodes after the last labelling of this cluster; before the first, no Nodes."""
    try:
        known = KnownNodes.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        known = KnownNodes()
    return known if known.server == server else KnownNodes(server=server)


def find_changes(
    known: KnownNodes,
    before: Mapping[str, ClusterNode],
    results: Iterable[LabelResult],
    labelling: Labelling,
) -> tuple[NodeEvent, ...]:
    """Return what this labelling found changed, warnings first."""
    changes = [
        NodeEvent(name, node.uid, "NodeLeft", "It is gone from the cluster.")
        for name, node in known.nodes.items()
        if name not in before
    ]
    for result in results:
        node = before.get(result.kubernetes_node)
        changes += _changes_of(known, node, result, labelling) if node else ()
    return tuple(sorted(changes, key=lambda change: (not change.is_warning, change.node)))


def left_nodes(
    known: KnownNodes,
    before: Mapping[str, ClusterNode],
    results: Iterable[LabelResult],
    labelling: Labelling,
    *,
    changes: Iterable[NodeEvent],
) -> KnownNodes:
    """Return what this labelling left, for the next one."""
    by_node = {result.kubernetes_node: result for result in results}
    nodes = {}
    for name, node in before.items():
        result = by_node.get(name)
        labels, problem = _last_labels(known, node, labelling), ""
        if result and result.ok:
            labels = _hardware(result.labels, labelling)
        elif result and result.state in _PER_NODE:
            problem = result.reason or result.state
        nodes[name] = KnownNode(uid=node.uid, labels=labels, problem=problem)
    counts = Counter(known.counts) + Counter(change.reason for change in changes)
    return KnownNodes(server=known.server, nodes=nodes, counts=dict(counts))


def metrics_text(
    left: KnownNodes, results: Collection[LabelResult], labelling: Labelling, at: float
) -> str:
    """Return the state after a labelling in Prometheus' text format."""
    key = label_key(labelling.domain, "class", labelling.release)
    classes = Counter(node.labels.get(key, "") for node in left.nodes.values())
    wrong = Counter[str](result.state for result in results if not result.ok)
    counts = {reason: left.counts.get(reason, 0) for reason in REASONS}
    return "".join(
        (
            _metric("fleetbuild_nodes", "gauge", "Nodes by class.", "class", classes),
            _metric("fleetbuild_nodes_not_labelled", "gauge", "By outcome.", "outcome", wrong),
            _metric("fleetbuild_node_changes_total", "counter", "By reason.", "reason", counts),
            "# TYPE fleetbuild_last_labelling_timestamp_seconds gauge\n",
            f"fleetbuild_last_labelling_timestamp_seconds {at:.0f}\n",
        )
    )


def _metric(name: str, kind: str, about: str, label: str, samples: Mapping[str, int]) -> str:
    lines = [f'{name}{{{label}="{value}"}} {number}\n' for value, number in samples.items()]
    return "".join((f"# HELP {name} {about}\n# TYPE {name} {kind}\n", *sorted(lines)))


def _changes_of(
    known: KnownNodes, node: ClusterNode, result: LabelResult, labelling: Labelling
) -> Iterator[NodeEvent]:
    last = _last_labels(known, node, labelling)
    was, is_ = _hardware(node.labels, labelling), _hardware(result.labels, labelling)
    if result.state in _PER_NODE:
        seen = known.nodes.get(node.name)
        reason, note = "LabelsRefused", result.reason or result.state
        if seen and seen.uid == node.uid and seen.problem == note:
            return
    elif result.state != "labelled" or was == is_:
        return
    else:
        reason = "LabelsRestored" if was != last else "ClassChanged" if was else "Labelled"
        different = sorted(key for key in was | is_ if was.get(key) != is_.get(key))
        note = "; ".join(
            f"{key}: was {was.get(key, 'absent')}, is {is_.get(key, 'absent')}" for key in different
        )
    is_warning = reason in ("LabelsRestored", "LabelsRefused")
    yield NodeEvent(node.name, node.uid, reason, note, is_warning)


def _last_labels(known: KnownNodes, node: ClusterNode, labelling: Labelling) -> dict[str, str]:
    """Return the hardware labels that the last labelling left on a Node.

    If that is not known, return the labels that fleetbuild owns there now.
    """
    seen = known.nodes.get(node.name)
    if seen and seen.uid == node.uid:
        return dict(seen.labels)
    return _hardware(node.owned(labelling.manager), labelling)


def _hardware(labels: Mapping[str, str], labelling: Labelling) -> dict[str, str]:
    ours = labelling.release, labelling.domain
    return {key: value for key, value in labels.items() if is_hardware_label(key, *ours)}
