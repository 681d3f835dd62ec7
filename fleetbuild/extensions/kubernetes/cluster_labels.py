"""Labels of a cluster's Nodes: compare them (`status`), set or remove them (`emit labels`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fleetbuild.apply.serving import serving_now
from fleetbuild.extensions.kubernetes.api import connect
from fleetbuild.extensions.kubernetes.api.events import record_events
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.labels.api_labeller import ApiLabeller, result_of
from fleetbuild.extensions.kubernetes.labels.apply import (
    Labelling,
    WantedLabels,
    is_settled,
    label_nodes,
)
from fleetbuild.extensions.kubernetes.labels.changes import (
    find_changes,
    left_nodes,
    metrics_text,
    read_known,
)
from fleetbuild.extensions.kubernetes.labels.labeller import (
    Labels,
    LabelTargets,
    targets_of_plan,
)
from fleetbuild.extensions.kubernetes.labels.release_labels import (
    is_hardware_label,
    is_label_of,
    verified_labels,
)
from fleetbuild.files import write_atomically
from fleetbuild.fleet import Fleet
from fleetbuild.models import Cluster, Facts, LabelResult, Manifest, NodeStatus, Plan, Result
from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import LabelsBy
from fleetbuild.models.result import label_code
from fleetbuild.models.serving import Serving, hosts


class Labelled(Frozen):
    """The result of labelling a cluster, and its Nodes that are not hosts of the inventory."""

    nodes: tuple[LabelResult, ...] = ()
    nodes_without_host: tuple[str, ...] = ()  # Nodes that match no host
    remarks: tuple[str, ...] = ()  # such as why changes were not recorded
    changes: tuple[str, ...] = ()  # since the last labelling, if somebody asked for them

    @property
    def exit_code(self) -> int:
        """0, or the most serious exit code."""
        return label_code(self.nodes)


def compare_labels(
    found: Mapping[str, NodeStatus],
    facts: Mapping[str, Facts],
    names: LabelTargets,
    cluster: Cluster,
    *,
    limited: bool = False,
    by: LabelsBy = "files",
) -> dict[str, NodeStatus]:
    """Add to each node's status whether its labels in the cluster are right.

    Nodes that are not hosts of the inventory are added if they have labels of this release. With
    `limited` they are left out, because hosts outside the limit are unknown. `by` says who labels.
    """
    with connect(cluster) as client:
        nodes = list_nodes(client)
    names = replace(names, nodes={**{name: name for name in found}, **names.nodes})
    compared = {}
    fix = "fleetbuild verify INVENTORY" if by == "nfd" else "fleetbuild emit labels --apply"
    for name, status in found.items():
        node = nodes.get(names.in_cluster(name))
        node_facts = facts.get(name)
        current = node_facts.release.get(names.release) if node_facts else None
        labels = node.labels if node else None
        status_ = status.model_copy(update={"labels_fix": fix})
        compared[name] = with_labels(status_, labels, current, names)
    hosts = {names.in_cluster(name) for name in found}
    others = () if limited else sorted(nodes.keys() - hosts)
    statuses = (status_without_host(name, nodes[name].labels, names) for name in others)
    return compared | {f"node/{status.node}": status for status in statuses if status}


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
        wanted |= names.served(current)
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


def label(
    fleet: Fleet,
    *,
    plan: Plan | None = None,
    result: Result | None = None,
    force: bool = False,
    events: bool = False,
    metrics: Path | str | None = None,
) -> Labelled:
    """Label the plan's nodes in the cluster by server-side apply, as `emit` would.

    A node whose release is unknown keeps its release labels. `force` takes over fleetbuild's labels
    that another manager has set. `events` records on each Node what changed since the last time,
    `metrics` names a file for the same as Prometheus reads it.
    """
    plan, state = plan or fleet.store.last_plan(), fleet.store.state
    serving = serving_now(plan, state, result)
    names = targets_of_plan(plan)
    release = dict(_release_labels(plan, serving))
    with connect(fleet.cluster or Cluster()) as client:
        api = ApiLabeller(names, client, force=force, state=state)
        before = dict(api.nodes)
        labelled = Labelled(
            nodes=tuple(api.settle(release).values()),
            nodes_without_host=api.nodes_without_host(),
        )
        if not (events or metrics):
            return labelled
        file = state.known_nodes_file(api.labelling.manager)
        known = read_known(file, client.access.server)
        changes = find_changes(known, before, labelled.nodes, api.labelling)
        missing = record_events(client, changes) if events else ""
        left = left_nodes(known, before, labelled.nodes, api.labelling, changes=changes)
        write_atomically(file, left.model_dump_json() + "\n")
        if metrics:
            text = metrics_text(left, labelled.nodes, api.labelling, time.time())
            write_atomically(Path(metrics), text, mode=0o644)
    return labelled.model_copy(
        update={
            "changes": tuple(f"{each.reason}: {each.node}: {each.note}" for each in changes),
            "remarks": tuple(filter(None, [missing])),
        }
    )


def _release_labels(plan: Plan, serving: Serving) -> Iterator[tuple[str, Labels | None]]:
    """Yield the release labels that each node should have; None keeps the present ones.

    A plan from a cluster knows of no release on a node: whoever installs there sets its labels.
    """
    for name in hosts(plan):
        if name in serving and plan.facts_source != "cluster":
            yield name, verified_labels(serving[name], plan)
        elif plan.nodes[name].group or name in serving:
            yield name, None


def unlabel(fleet: Fleet, *, plan: Plan | None = None, force: bool = False) -> Labelled:
    """Remove the labels of the plan's release from every Node, whether or not it is a host.

    `force` also removes labels that another manager has set.
    """
    plan, state = plan or fleet.store.last_plan(), fleet.store.state
    names = targets_of_plan(plan)
    labelling = Labelling(names.domain, names.release, force, state.create().controller())
    nothing = WantedLabels(release={}, hardware={})
    with connect(fleet.cluster or Cluster()) as client:
        nodes = list_nodes(client)
        labelled = {
            name for name, node in nodes.items() if not is_settled(node, nothing, labelling)
        }
        outcomes = label_nodes(client, nodes, dict.fromkeys(sorted(labelled), nothing), labelling)
    hosts_of = {called: host for host, called in names.nodes.items()}
    results = tuple(
        result_of(hosts_of.get(name, name), name, each, names.domain)
        for name, each in outcomes.items()
    )
    if all(result.ok for result in results):
        state.note_api_labels(names.release, None)
    return Labelled(nodes=results)
