"""Kubernetes manifests of a plan: labels, Node patches, workloads, build Jobs. No I/O.

In: a plan and the release that each node serves. Out: file names and texts. Read `render.py` first.
"""

from fleetbuild.kubernetes.delivery.containerfile import containers
from fleetbuild.kubernetes.delivery.images import default_image
from fleetbuild.kubernetes.delivery.options import Delivery, Kind, Way, Wheel
from fleetbuild.kubernetes.delivery.snippets import snippets
from fleetbuild.kubernetes.labels.affinity import affinity, selector
from fleetbuild.kubernetes.labels.feature_files import feature_file, feature_files
from fleetbuild.kubernetes.labels.node_labels import hardware_labels, node_labels
from fleetbuild.kubernetes.labels.release_labels import Serving, as_planned
from fleetbuild.kubernetes.labels.rules import node_feature_rule
from fleetbuild.kubernetes.names import label_value
from fleetbuild.kubernetes.render import (
    node_warnings,
    render,
    render_kustomize,
    render_labels,
    render_workload,
    warnings,
)

__all__ = [
    "Delivery",
    "Kind",
    "Serving",
    "Way",
    "Wheel",
    "affinity",
    "as_planned",
    "containers",
    "default_image",
    "feature_file",
    "feature_files",
    "hardware_labels",
    "label_value",
    "node_feature_rule",
    "node_labels",
    "node_warnings",
    "render",
    "render_kustomize",
    "render_labels",
    "render_workload",
    "selector",
    "snippets",
    "warnings",
]
