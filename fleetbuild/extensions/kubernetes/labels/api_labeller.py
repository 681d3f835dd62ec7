"""Label Nodes through the Kubernetes API, with the user's kubeconfig.

In: label targets and a client. Out: a label result for each node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from fleetbuild.errors import BlockedError
from fleetbuild.extension import Follower
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.nodes import ClusterNode, list_nodes
from fleetbuild.extensions.kubernetes.api.pods import may_list_pods, releases_of_pods
from fleetbuild.extensions.kubernetes.labels.apply import (
    Labelling,
    Outcome,
    WantedLabels,
    is_settled,
    label_nodes,
    may_label,
)
from fleetbuild.extensions.kubernetes.labels.labeller import (
    Labels,
    LabelTargets,
)
from fleetbuild.extensions.kubernetes.labels.nfd_labeller import NfdLabeller
from fleetbuild.models.problem import Problem
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import InUse, Serving
from fleetbuild.state import StateDir
from fleetbuild.text import fold


class ApiLabeller(Follower):
    """Labels Nodes through the API server."""

    def __init__(
        self,
        names: LabelTargets,
        client: Client,
        *,
        force: bool = False,
        asked: bool = False,
        state: StateDir | None = None,
        former: NfdLabeller | None = None,
    ) -> None:
        self._names, self._client, self._state, self._former = names, client, state, former
        controller = state.create().controller() if state else ""
        self.labelling = Labelling(names.domain, names.release, force, controller, asked)

    @cached_property
    def nodes(self) -> dict[str, ClusterNode]:
        """The cluster's Nodes, as far as this labeller knows them."""
        return list_nodes(self._client)

    def prepare(self, *, installs: bool = False) -> str:
        """See Follower."""
        present = self._nodes_of_hosts()
        if present:
            may_label(self._client, present[0], self.labelling)
        cleared = self._former.clear() if self._former else ""
        no_pods = may_list_pods(self._client) if installs else ""
        return " ".join(filter(None, (cleared, no_pods)))

    def _nodes_of_hosts(self) -> list[ClusterNode]:
        """Return the Nodes of the hosts; raise if no host has one, as in a wrong cluster."""
        hosts = self._names.nodes
        present = [node for called in hosts.values() if (node := self.nodes.get(called))]
        if hosts and not present:
            raise BlockedError(
                f"None of the {len(hosts)} hosts is a Node of {self._client.access.where}.",
                "Name another cluster with --context, or set kubernetes.node_name in"
                " fleetbuild.yml to what the Nodes are called.",
            )
        return present

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        """Remove the release's labels. With `serves` the label `group` stays, by which DaemonSets
        keep their pods. Each Node is patched, because the cached state may be hours old.
        """
        kept = self._names.kept_while_changing if serves else ()
        wanted = {name: replace(self._wanted(name, {}), kept=kept) for name in names}
        return self._label(wanted, trust=False)

    def after(self, served: Serving) -> dict[str, LabelResult]:
        """Label these nodes according to the release that they serve."""
        off = self.before([name for name, manifest in served.items() if not manifest])
        wanted = {
            name: self._wanted(name, self._names.served(manifest))
            for name, manifest in served.items()
            if manifest
        }
        return {**off, **self._label(wanted)}

    def in_use(self, names: Collection[str], root: str) -> InUse:
        """Return the releases that pods mount. A host whose Node is not certain may have pods."""
        self._nodes_of_hosts()
        problems = {name: each for name in names if (each := self._problem(name))}
        on_nodes = {name: self._names.in_cluster(name) for name in names if name not in problems}
        releases = releases_of_pods(self._client, list(on_nodes.values()), root)
        uncertain = {
            name: Problem(each.reason or "", each.fix or "")
            for name, each in problems.items()
            if not each.ok
        }
        mounted = {name: releases[node] for name, node in on_nodes.items() if node in releases}
        return {**mounted, **uncertain}

    def settle(self, release: Mapping[str, Labels | None]) -> dict[str, LabelResult]:
        """Set each node's hardware labels, and its release labels if they are known."""
        present = self._nodes_of_hosts()
        wanted = {name: self._wanted(name, labels) for name, labels in release.items()}
        if present and not all(self._is_settled(*item) for item in wanted.items()):
            may_label(self._client, present[0], self.labelling)
        return self._label(wanted)

    def nodes_without_host(self) -> tuple[str, ...]:
        """Return the Nodes that match no host."""
        return tuple(sorted(self.nodes.keys() - set(self._names.nodes.values())))

    def _wanted(self, name: str, release: Labels | None) -> WantedLabels:
        return WantedLabels(release, self._names.hardware.get(name))

    def _is_settled(self, name: str, wanted: WantedLabels) -> bool:
        node = self.nodes.get(self._names.in_cluster(name))
        return node is None or is_settled(node, wanted, self.labelling)

    def _label(
        self, wanted: Mapping[str, WantedLabels], *, trust: bool = True
    ) -> dict[str, LabelResult]:
        """Patch the Nodes that lack wanted labels; with `trust`, skip Nodes that looked right."""
        results = {name: problem for name in wanted if (problem := self._problem(name))}
        open_ = {}
        for name in wanted.keys() - results.keys():
            called = self._names.in_cluster(name)
            if trust and self._is_settled(name, wanted[name]):
                results[name] = self._result(
                    name, Outcome("unchanged", labels=self.nodes[called].labels)
                )
            else:
                open_[name] = called
        if open_ and self._state:
            self._state.note_api_labels(self._names.release, self._client.access.context)
        by_node = {called: wanted[name] for name, called in open_.items()}
        outcomes = label_nodes(self._client, self.nodes, by_node, self.labelling)
        self.nodes.update({name: each.node for name, each in outcomes.items() if each.node})
        results |= {name: self._result(name, outcomes[called]) for name, called in open_.items()}
        return {name: results[name] for name in wanted}

    def _problem(self, name: str) -> LabelResult | None:
        """Return a result if a host cannot be matched to exactly one Node, else None."""
        called = self._names.in_cluster(name)
        claimants = self._names.claimants(called)
        if len(claimants) > 1:
            return LabelResult(
                node=name,
                kubernetes_node=called,
                state="refused",
                reason=f"{fold(claimants)} all have the Node name {called}.",
                fix="Set kubernetes_node for each host.",
            )
        if called not in self.nodes and (alike := self._alike(called)):
            return LabelResult(
                node=name,
                kubernetes_node=called,
                state="refused",
                reason=f"{self._client.access.where} has no Node {called}, but {fold(alike)}.",
                fix="Say which Node it is: kubernetes_node for this host, or kubernetes.node_name"
                " in fleetbuild.yml.",
            )
        if called not in self.nodes:
            return LabelResult(
                node=name,
                kubernetes_node=called,
                state="no_node",
                reason=f"{self._client.access.where} has no Node "
                + ("of its name." if called == name else f"{called}."),
                fix="If it should have one, check kubernetes.node_name in fleetbuild.yml.",
            )
        return None

    def _alike(self, called: str) -> list[str]:
        """Return the Nodes without a host with the first part of this name: a.example.org for a."""
        first = called.partition(".")[0]
        return [node for node in self.nodes_without_host() if node.partition(".")[0] == first]

    def _result(self, name: str, outcome: Outcome) -> LabelResult:
        return result_of(name, self._names.in_cluster(name), outcome, self._names.domain)


def result_of(name: str, node: str, outcome: Outcome, domain: str) -> LabelResult:
    """Return the label result for a host and its Node."""
    return LabelResult(
        node=name,
        kubernetes_node=node,
        state=outcome.state,
        labels={key: each for key, each in outcome.labels.items() if key.startswith(f"{domain}/")},
        reason=outcome.reason,
        fix=outcome.fix,
    )
