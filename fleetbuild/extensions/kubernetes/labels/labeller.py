"""Which nodes are labelled: manually, through Node Feature Discovery, or by the API.

A labeller is a follower: a node's release labels are removed before anything on it changes, and set
again once its release is verified; hardware labels stay set throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from fleetbuild.extension import Follower
from fleetbuild.extensions.kubernetes.config import Kubernetes, kubernetes_node
from fleetbuild.extensions.kubernetes.labels.classes import hardware_of_hosts
from fleetbuild.extensions.kubernetes.labels.node_labels import (
    check_domain,
    kubernetes_name,
    label_key,
)
from fleetbuild.extensions.kubernetes.labels.release_labels import DEFAULT, served_labels
from fleetbuild.models import Config, Inventory, Manifest, Plan

if TYPE_CHECKING:
    from fleetbuild.extensions.kubernetes.labels.nfd_labeller import NfdLabeller

Labels = Mapping[str, str]


@dataclass(frozen=True)
class LabelTargets:
    """The nodes to label with their names in the cluster, domain, release and hardware labels."""

    domain: str
    release: str = DEFAULT
    packages: bool = False  # whether each planned package has a label
    nodes: Mapping[str, str] = field(default_factory=dict)  # inventory -> cluster
    hardware: Mapping[str, Labels] = field(default_factory=dict)  # of hosts with known hardware

    @property
    def kept_while_changing(self) -> tuple[str, ...]:
        """Which of a node's release labels stay while its release is replaced."""
        return (label_key(self.domain, "group", self.release),)

    def served(self, manifest: Manifest) -> dict[str, str]:
        """Return the release labels of a node while this verified release serves."""
        return served_labels(manifest, self.domain, packages=self.packages)

    def in_cluster(self, name: str) -> str:
        """Return the Node name of a host."""
        return self.nodes.get(name, name)

    def claimants(self, node: str) -> tuple[str, ...]:
        """Return the hosts with this Node name; more than one is an error."""
        return tuple(sorted(self._called.get(node, ())))

    @cached_property
    def _called(self) -> Mapping[str, Sequence[str]]:
        called: dict[str, list[str]] = {}
        for host, node in self.nodes.items():
            called.setdefault(node, []).append(host)
        return called


def targets_of_plan(plan: Plan) -> LabelTargets:
    """Return the label targets of a plan."""
    check_domain(plan.label_domain)
    return LabelTargets(
        domain=plan.label_domain,
        release=plan.release,
        packages=plan.package_labels,
        nodes={name: kubernetes_name(plan, name) for name in plan.nodes},
        hardware=hardware_of_hosts(plan),
    )


def label_targets(inventory: Inventory, config: Config, last_plan: Plan | None) -> LabelTargets:
    """Return the label targets of the last plan; other hosts are named by the configuration."""
    kubernetes = config.section(Kubernetes)
    targets = LabelTargets(kubernetes.label_domain, config.release)
    if last_plan and last_plan.release == config.release:
        targets = targets_of_plan(last_plan)
    called = {
        node.name: (kubernetes_node(node, kubernetes.node_name) or node.name).lower()
        for node in inventory.nodes
    }
    nodes = {**called, **targets.nodes}
    return replace(targets, packages=kubernetes.package_labels, nodes=nodes)


class ManualLabels(Follower):
    """Sets no labels: the user applies the files that the last stage writes."""

    def __init__(self, former: NfdLabeller) -> None:
        self._former = former

    def prepare(self, *, installs: bool = False) -> str:  # noqa: ARG002 see Follower
        """See Follower."""
        return self._former.clear()
