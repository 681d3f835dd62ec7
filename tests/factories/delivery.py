"""Every way and kind in which pods get a release, and a cluster that they could land in."""

from __future__ import annotations

from pathlib import Path

import yaml

from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render_labels
from fleetbuild.models import Plan, ReleaseFile
from fleetbuild.models.serving import Serving
from tests.factories.plans import make_group, make_plan, make_target, make_wheel

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


def six_nodes() -> Plan:
    """Three groups of two nodes: CPU, GPU, and Arm."""
    gpu = make_target("avx512", sms=("8.6",))
    arm = make_target("armv8.2")
    return make_plan(
        (
            make_group(("cpu-1", "cpu-2")),
            make_group(("gpu-1", "gpu-2"), gpu, (make_wheel("torch", "2.13.0+cu130.sm86.avx512"),)),
            make_group(("arm-1", "arm-2"), arm),
        )
    )


def wheels_of(plan: Plan) -> dict[str, tuple[ReleaseFile, ...]]:
    """The wheels of each group, as a store would tell them."""
    return {
        group.name: tuple(
            ReleaseFile(
                each.package, Path(f"{each.package}-{each.wheel_version}-cp311.whl"), "ab" * 32
            )
            for each in group.wheels
        )
        for group in plan.groups
    }


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
