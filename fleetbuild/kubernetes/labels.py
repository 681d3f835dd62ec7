"""The labels of a node, as a kubectl script and as Node patches."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping

from fleetbuild.errors import ConfigError
from fleetbuild.kubernetes.document import comment, dump
from fleetbuild.kubernetes.names import is_subdomain, label_value
from fleetbuild.models import Plan, PlannedGroup, Target

FIELD_MANAGER = "fleetbuild"

_SCRIPT_HEADER = """\
Labels the nodes on which a release was installed and verified, one line a node, so that pods which
mount the release are scheduled there and nowhere else. Runs as often as you like; touches no label
outside {domain}/. Wants kubectl and a login that may label nodes:
    sh labels.sh
"""

_PATCHES_HEADER = """\
The same labels as labels.sh, for server-side apply. fleetbuild is the field manager, so a label
that a later file no longer has goes away, and labels of others stay as they are:
    kubectl apply --server-side --field-manager={manager} -f nodes.yaml
All these nodes must have joined already: apply creates a Node object that is not there.
"""


def hardware_labels(target: Target, domain: str) -> dict[str, str]:
    """What CPU and GPUs alone decide: true of the node whatever is installed on it."""
    sms = ".".join("sm" + sm.replace(".", "") for sm in target.sms) or "cpu"
    return {
        f"{domain}/class": label_value(f"{sms}-{target.isa}"),
        f"{domain}/isa": label_value(target.isa),
    }


def selector_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """What a pod asks for that mounts this group's release from its node."""
    labels = {_key(plan, "group"): group.name, _key(plan, "release"): group.release_id or ""}
    return {key: label_value(value) for key, value in labels.items()}


def node_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """All labels of a verified node of this group, keys with their domain, sorted."""
    check_domain(plan.label_domain)
    versions = {
        _key(plan, f"package.{wheel.package}"): label_value(wheel.wheel_version)
        for wheel in group.wheels
    }
    hardware = hardware_labels(group.target, plan.label_domain)
    return dict(sorted({**hardware, **selector_labels(plan, group), **versions}.items()))


def label_script(plan: Plan, nodes: Mapping[str, PlannedGroup]) -> str:
    """labels.sh: a POSIX script with one `kubectl label` a node."""
    lines = ["#!/bin/sh", *comment(_SCRIPT_HEADER.format(domain=plan.label_domain)), "failed=0"]
    for node, group in sorted(nodes.items()):
        pairs = (f"{key}={value}" for key, value in node_labels(plan, group).items())
        command = shlex.join(["kubectl", "label", "--overwrite", "node", node, *pairs])
        lines.append(f"{command} || failed=1")
    if not nodes:
        lines.append("echo 'No node is verified yet: nothing to label.'")
    return "\n".join([*lines, 'exit "$failed"']) + "\n"


def node_patches(plan: Plan, nodes: Mapping[str, PlannedGroup]) -> str:
    """nodes.yaml: a Node a document, holding fleetbuild's labels and nothing else."""
    documents = [
        dump(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node, "labels": node_labels(plan, group)},
            }
        )
        for node, group in sorted(nodes.items())
    ]
    header = "\n".join(comment(_PATCHES_HEADER.format(manager=FIELD_MANAGER))) + "\n"
    return header + "---\n".join(documents)


def nodes_to_label(plan: Plan, verified: Collection[str] | None) -> dict[str, PlannedGroup]:
    """The verified nodes by their Kubernetes names; None takes those that were up to date."""
    times = Counter(kubernetes_name(plan, node) for group in plan.groups for node in group.nodes)
    return {
        name: group
        for group in plan.groups
        for node in group.nodes
        if node in (group.installs.up_to_date if verified is None else verified)
        # A name that two hosts claim, or that no node can have, gets no labels: see warnings().
        and times[name := kubernetes_name(plan, node)] == 1
        and is_subdomain(name)
        and group.release_id
    }


def kubernetes_name(plan: Plan, node: str) -> str:
    """What a host of the inventory is called in the cluster."""
    planned = plan.nodes.get(node)
    return (planned.kubernetes_node if planned else None) or node


def check_domain(domain: str) -> None:
    """Refuse a label domain that the API would refuse."""
    if not is_subdomain(domain):
        raise ConfigError(
            f"kubernetes.label_domain is {domain!r}, which cannot be the prefix of a label",
            "Use a DNS name: lower case letters, digits, dashes and dots, such as fleetbuild.dev.",
        )


def _key(plan: Plan, name: str) -> str:
    # Releases that live side by side on a node must not share a label.
    suffix = "" if plan.release == "default" else f".{plan.release}"
    return f"{plan.label_domain}/{label_value(name + suffix)}"
