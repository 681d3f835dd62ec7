"""Every way and kind in which pods get a release, and a cluster that they could land in."""

from __future__ import annotations

import yaml

from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render_labels
from fleetbuild.models import Plan
from fleetbuild.models.serving import Serving

PREFIX = "registry.example.com/team/fleet"
WAYS = {
    "hostpath": Delivery(way="hostpath"),
    "image": Delivery(way="image", image_prefix=PREFIX),
    "volume": Delivery(way="volume", image_prefix=PREFIX),
    "init": Delivery(way="init", index_url="http://wheels.example.com:8000/fleet/"),
}
KINDS = ("deployment", "job", "daemonset")


def delivery(way: str, kind: str = "deployment") -> Delivery:
    """One of the ways, for this kind of workload."""
    values = vars(WAYS[way]) | {"kind": kind}
    return Delivery(**values)


def cluster(plan: Plan, serving: Serving) -> dict[str, dict[str, str]]:
    """The Nodes of nodes.yaml with the labels that a kubelet adds itself."""
    arches = {
        node: {"x86_64": "amd64", "aarch64": "arm64"}[group.target.arch]
        for group in plan.groups
        for node in group.nodes
    }
    return {
        node["metadata"]["name"]: node["metadata"]["labels"]
        | {"kubernetes.io/os": "linux", "kubernetes.io/arch": arches[node["metadata"]["name"]]}
        for node in yaml.safe_load_all(render_labels(plan, serving)["nodes.yaml"])
    }
