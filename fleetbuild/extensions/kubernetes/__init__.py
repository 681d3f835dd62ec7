"""Kubernetes: labels that name each node's release, manifests for pods that use it, build Jobs.

In: runs that change or verify nodes, plans, clusters. Out: labels around each change, files after
an apply and by `emit`, the nodes of a cluster. Read `manifests/render.py` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetbuild.extension import EmitKind, Extension, FollowedRun, Follower

if TYPE_CHECKING:
    from fleetbuild.models import (
        Cluster,
        Config,
        Facts,
        Inventory,
        Node,
        NodeStatus,
        Plan,
        PlannedGroup,
    )
    from fleetbuild.models._base import Frozen
    from fleetbuild.models.serving import Serving


def _kind(name: str, *, has_releases: bool = True, has_wheels: bool = False) -> EmitKind:
    function = f"fleetbuild.extensions.kubernetes.emit.writers:{name}"
    return EmitKind(name, function, has_releases, has_wheels)


class Kubernetes(Extension):
    """See the module."""

    def sections(self) -> Mapping[str, type[Frozen]]:
        from fleetbuild.extensions.kubernetes.config import KEY, Kubernetes

        return {KEY: Kubernetes}

    def commands(self) -> Sequence[Callable[..., None]]:
        from fleetbuild.extensions.kubernetes import commands

        return commands.COMMANDS

    def emit_kinds(self) -> Sequence[EmitKind]:
        return (
            _kind("k8s"),
            _kind("labels", has_releases=False),
            _kind("nfd", has_releases=False),
            _kind("affinity"),
            _kind("kustomize"),
            _kind("containers", has_wheels=True),
            _kind("builds"),
            _kind("dra", has_releases=False),
            _kind("kueue", has_releases=False),
            _kind("nodepools"),
            _kind("rbac"),
            _kind("labeller", has_releases=False),
            _kind("policy"),
        )

    def read_fleet(
        self, cluster: Cluster, config: Config
    ) -> tuple[Inventory, dict[str, Facts], Config]:
        from fleetbuild.extensions.kubernetes.read_fleet import read_fleet_of

        return read_fleet_of(cluster, config)

    def plan_fields(self, config: Config) -> Mapping[str, Any]:
        from fleetbuild.extensions.kubernetes.config import Kubernetes

        section = config.section(Kubernetes)
        return section.model_dump(include={"label_domain", "package_labels", "labels"})

    def node_fields(self, node: Node, config: Config) -> Mapping[str, Any]:
        from fleetbuild.extensions.kubernetes.config import Kubernetes, kubernetes_node

        return {"kubernetes_node": kubernetes_node(node, config.section(Kubernetes).node_name)}

    def installed_sections(self, plan: Plan, config: Config) -> Mapping[str, Frozen]:
        from fleetbuild.extensions.kubernetes.config import KEY, installed_section

        return {KEY: installed_section(plan, config)}

    def follower(self, run: FollowedRun) -> AbstractContextManager[Follower]:
        from fleetbuild.extensions.kubernetes.follower import open_labeller

        return open_labeller(run)

    def compare(
        self,
        statuses: dict[str, NodeStatus],
        facts: Mapping[str, Facts],
        *,
        inventory: Inventory,
        config: Config,
        plan: Plan | None,
        cluster: Cluster | None,
    ) -> dict[str, NodeStatus]:
        from fleetbuild.extensions.kubernetes.config import Kubernetes

        by = config.section(Kubernetes).labels
        if cluster is None and by != "api":
            return statuses
        from fleetbuild.extensions.kubernetes.cluster_labels import compare_labels
        from fleetbuild.extensions.kubernetes.labels.labeller import label_targets
        from fleetbuild.models import Cluster

        targets = label_targets(inventory, config, plan)
        limited = inventory.limit is not None
        return compare_labels(
            statuses, facts, targets, cluster or Cluster(), limited=limited, by=by
        )

    def written(
        self,
        plan: Plan,
        groups: Sequence[PlannedGroup],
        serving: Serving,
        store: Path,
        config: Config,
    ) -> Mapping[str, str]:
        from fleetbuild.extensions.kubernetes.follower import workloads

        return workloads(plan, groups, serving, store, config)


extension = Kubernetes()
