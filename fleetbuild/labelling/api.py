"""Labels by server-side apply, through the user's kubeconfig."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from fleetbuild.cluster import Cluster
from fleetbuild.cluster.client import Client
from fleetbuild.cluster.labels import Labelling, Outcome, WantedLabels, label_nodes, may_label
from fleetbuild.cluster.nodes import ClusterNode, list_nodes
from fleetbuild.errors import BlockedError
from fleetbuild.kubernetes.labels.release_labels import (
    Serving,
    hosts,
    served_labels,
    verified_labels,
)
from fleetbuild.labelling.labeller import Labels, LabelTargets, Results, targets_of_plan
from fleetbuild.models import Facts, Manifest, NodeStatus, Plan
from fleetbuild.models.result import Labelled, LabelResult
from fleetbuild.tasks.status import stranger, with_labels


class ApiLabeller:
    """We label, through the user's kubeconfig."""

    def __init__(self, names: LabelTargets, client: Client, *, force: bool = False) -> None:
        self._names, self._client = names, client
        self._labelling = Labelling(names.domain, names.release, force)

    @cached_property
    def _nodes(self) -> dict[str, ClusterNode]:
        return list_nodes(self._client)

    def prepare(self) -> None:
        """See Labeller."""
        hosts = self._names.nodes
        there = [node for called in hosts.values() if (node := self._nodes.get(called))]
        if hosts and not there:
            raise BlockedError(
                f"None of the {len(hosts)} hosts is a Node of {self._client.access.where}.",
                "Name another cluster with --context, or set kubernetes.node_name in"
                " fleetbuild.yml to what the Nodes are called.",
            )
        if there:
            may_label(self._client, there[0], self._labelling)

    def withdraw(self, names: Iterable[str]) -> Results:
        """See Labeller."""
        return self._label({name: self._wanted(name, {}) for name in names})

    def publish(self, served: Mapping[str, Manifest]) -> Results:
        """See Labeller."""
        return self._label(
            {
                name: self._wanted(name, served_labels(manifest, self._names.domain))
                for name, manifest in served.items()
            }
        )

    def settle(self, release: Mapping[str, Labels | None]) -> Results:
        """Give each node its hardware labels, and those of the release where they are known."""
        return self._label({name: self._wanted(name, labels) for name, labels in release.items()})

    def strangers(self) -> tuple[str, ...]:
        """The Nodes that none of our hosts is called like."""
        return tuple(sorted(self._nodes.keys() - set(self._names.nodes.values())))

    def _wanted(self, name: str, release: Labels | None) -> WantedLabels:
        return WantedLabels(release, self._names.hardware.get(name))

    def _label(self, wanted: Mapping[str, WantedLabels]) -> Results:
        refused = {name: problem for name in wanted if (problem := self._problem(name))}
        open_ = {name: each for name, each in wanted.items() if name not in refused}
        outcomes = label_nodes(
            self._client,
            self._nodes,
            {self._names.in_cluster(name): each for name, each in open_.items()},
            self._labelling,
        )
        done = {name: self._result(name, outcomes[self._names.in_cluster(name)]) for name in open_}
        return {name: (refused | done)[name] for name in wanted}

    def _problem(self, name: str) -> LabelResult | None:
        """Why a host cannot be told in the cluster."""
        called = self._names.in_cluster(name)
        claimants = self._names.claimants(called)
        if len(claimants) > 1:
            return LabelResult(
                node=name,
                kubernetes_node=called,
                state="refused",
                reason=f"{', '.join(claimants)} are all called {called} in the cluster.",
                fix="Set kubernetes_node for each host.",
            )
        if called not in self._nodes:
            return LabelResult(
                node=name,
                kubernetes_node=called,
                state="no_node",
                reason=f"There is no Node {called} in {self._client.access.where}.",
                fix="If there should be, look at kubernetes.node_name in fleetbuild.yml.",
            )
        return None

    def _result(self, name: str, outcome: Outcome) -> LabelResult:
        prefix = f"{self._names.domain}/"
        return LabelResult(
            node=name,
            kubernetes_node=self._names.in_cluster(name),
            state=outcome.state,
            labels={key: value for key, value in outcome.labels.items() if key.startswith(prefix)},
            reason=outcome.reason,
            fix=outcome.fix,
        )


def compare_labels(
    found: Mapping[str, NodeStatus],
    facts: Mapping[str, Facts],
    names: LabelTargets,
    cluster: Cluster,
    *,
    limited: bool = False,
) -> dict[str, NodeStatus]:
    """What nodes are, with what the cluster says of them; and Nodes that are no host, where they
    have labels of this release. Of a limited fleet nobody knows which those are.
    """
    with cluster.connect() as client:
        nodes = list_nodes(client)
    compared = {}
    for name, status in found.items():
        node = nodes.get(names.in_cluster(name))
        known = facts.get(name)
        current = known.release.get(names.release) if known else None
        labels = node.labels if node else None
        compared[name] = with_labels(status, labels, current, names)
    hosts = {names.in_cluster(name) for name in found}
    strangers = () if limited else sorted(nodes.keys() - hosts)
    statuses = (stranger(name, nodes[name].labels, names) for name in strangers)
    return compared | {f"node/{each.node}": each for each in statuses if each}


def label_cluster(plan: Plan, serving: Serving, cluster: Cluster, *, force: bool) -> Labelled:
    """Label the nodes of a plan now, by what each of them serves."""
    names = targets_of_plan(plan)
    release = dict(_release_labels(plan, serving))
    with cluster.connect() as client:
        api = ApiLabeller(names, client, force=force)
        api.prepare()
        return Labelled(nodes=tuple(api.settle(release).values()), strangers=api.strangers())


def _release_labels(plan: Plan, serving: Serving) -> Iterator[tuple[str, Labels | None]]:
    """What each node is to have: those of what serves, or what there is (None) where nobody
    knows."""
    for name in hosts(plan):
        if name in serving:
            yield name, verified_labels(serving[name], plan.label_domain)
        elif plan.nodes[name].group:
            yield name, None
