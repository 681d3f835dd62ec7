"""Everything for Kubernetes: manifests (pure), labels, the API client, build Jobs.

In: a plan and the release that each node serves. Out: file names and texts, labels on Nodes. Read
`manifests/render.py` first.
"""

from fleetbuild.kubernetes.labels.affinity import affinity, selector
from fleetbuild.kubernetes.labels.feature_files import feature_file, feature_files
from fleetbuild.kubernetes.labels.node_labels import hardware_labels, node_labels
from fleetbuild.kubernetes.labels.release_labels import Serving, as_planned
from fleetbuild.kubernetes.labels.rules import node_feature_rule
from fleetbuild.kubernetes.manifests.containerfile import containers
from fleetbuild.kubernetes.manifests.images import default_image
from fleetbuild.kubernetes.manifests.names import label_value
from fleetbuild.kubernetes.manifests.options import Delivery, Kind, Way
from fleetbuild.kubernetes.manifests.render import (
    node_warnings,
    render,
    render_helm,
    render_kustomize,
    render_labels,
    render_workload,
    warnings,
)
from fleetbuild.kubernetes.manifests.snippets import snippets

__all__ = [
    "Delivery",
    "Kind",
    "Serving",
    "Way",
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
    "render_helm",
    "render_kustomize",
    "render_labels",
    "render_workload",
    "selector",
    "snippets",
    "warnings",
]
