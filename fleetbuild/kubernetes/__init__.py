"""From a plan to what Kubernetes needs to know: labels, Node patches, Deployments. No I/O here."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fleetbuild.kubernetes.document import dump
from fleetbuild.kubernetes.images import default_image
from fleetbuild.kubernetes.labels import (
    check_domain,
    hardware_labels,
    kubernetes_name,
    label_script,
    node_labels,
    node_patches,
    nodes_to_label,
)
from fleetbuild.kubernetes.names import is_subdomain, label_value
from fleetbuild.kubernetes.nfd import feature_file
from fleetbuild.kubernetes.workload import deployment
from fleetbuild.models import Plan

__all__ = [
    "default_image",
    "feature_file",
    "hardware_labels",
    "label_value",
    "node_labels",
    "render",
    "warnings",
]

_KUSTOMIZATION = """\
The workloads of all groups: kubectl apply -k .
Labels are not among them: they are put on verified nodes by labels.sh or nodes.yaml."""


def render(
    plan: Plan, *, verified: Collection[str] | None = None, image: str | None = None
) -> dict[str, str]:
    """File name to text. `verified` names the inventory's nodes that get release labels; without it
    those which the plan found up to date. `image` is used in place of the official Python images.
    """
    check_domain(plan.label_domain)
    nodes = nodes_to_label(plan, verified)
    deployments = dict(_deployments(plan, image))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(deployments),
    }
    files = {
        "labels.sh": label_script(plan, nodes),
        "nodes.yaml": node_patches(plan, nodes),
        "kustomization.yaml": dump(kustomization, _KUSTOMIZATION),
    }
    return dict(sorted({**files, **deployments}.items()))


def warnings(plan: Plan, *, image: str | None = None) -> tuple[str, ...]:
    """What `render` had to leave out, a sentence each."""
    return (*_bad_names(plan), *_left_out(plan, image))


def _deployments(plan: Plan, image: str | None) -> Iterator[tuple[str, str]]:
    for group in sorted(plan.groups, key=lambda group: group.name):
        chosen = image or default_image(group.target)
        if chosen and group.release_id:
            yield f"deployment-{label_value(group.name)}.yaml", deployment(plan, group, chosen)


def _bad_names(plan: Plan) -> Iterator[str]:
    by_name: dict[str, list[str]] = {}
    for node in sorted(node for group in plan.groups for node in group.nodes):
        name = kubernetes_name(plan, node)
        by_name.setdefault(name, []).append(node)
        if not is_subdomain(name):
            yield (
                f"{node}: {name!r} cannot be the name of a Kubernetes node, so it gets no labels; "
                "set kubernetes_node for this host, or kubernetes.node_name in fleetbuild.yml."
            )
    for name, nodes in by_name.items():
        if len(nodes) > 1:
            yield (
                f"{', '.join(nodes)} are all called {name!r} in the cluster, so none gets labels; "
                "set kubernetes_node for each host."
            )


def _left_out(plan: Plan, image: str | None) -> Iterator[str]:
    for group in plan.groups:
        libc = group.target.libc
        if not group.release_id:
            yield f"{group.name}: no release is planned (the lock is missing), so no Deployment."
        elif not image and not default_image(group.target):
            yield (
                f"{group.name}: no official Python image is known for {group.target.python} with "
                f"{libc.family} {libc.floor} or newer, so no Deployment; name an image."
            )
