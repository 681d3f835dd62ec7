"""What `emit labels` says of the Nodes that it labelled."""

from __future__ import annotations

from collections import Counter

from fleetbuild.cli.show.result import LABELS, label_troubles
from fleetbuild.extensions.kubernetes.cluster_labels import Labelled
from fleetbuild.text import clean, count, fold


def labelled_lines(labelled: Labelled) -> list[str]:
    """Return the results of labelling a cluster; the count comes last."""
    lines = label_troubles(labelled.nodes)
    lines += [*labelled.remarks, *map(clean, labelled.changes)]
    if labelled.nodes_without_host:
        others = fold(labelled.nodes_without_host)
        lines.append(f"Nodes of the cluster that are not in the inventory: {others}")
    ended = Counter(LABELS[node.state] for node in labelled.nodes)
    parts = [f"{ended[words]} {words}" for words in dict.fromkeys(LABELS.values()) if ended[words]]
    return [*lines, f"{count(ended.total(), 'node')}: {', '.join(parts) or 'none to label'}."]


def unlabelled_lines(labelled: Labelled) -> list[str]:
    """Return the results of removing labels from a cluster; the count comes last."""
    removed = sum(node.ok for node in labelled.nodes)
    return [*label_troubles(labelled.nodes), f"Labels removed from {count(removed, 'node')}."]
