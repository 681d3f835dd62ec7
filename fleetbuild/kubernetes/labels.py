"""The labels of a node, as a kubectl script and as Node patches."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

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


def class_name(isa: str, sms: Sequence[str]) -> str:
    """What a hardware class is called: sm86-avx2, sm80.sm90-avx512, cpu-avx."""
    return f"{'.'.join('sm' + sm.replace('.', '') for sm in sms) or 'cpu'}-{isa}"


def hardware_labels(target: Target, domain: str, release: str = "default") -> dict[str, str]:
    """What CPU and GPUs alone decide: true of the node whatever is installed on it."""
    return {
        label_key(domain, "class", release): label_value(class_name(target.isa, target.sms)),
        label_key(domain, "isa", release): label_value(target.isa),
    }


def class_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """The hardware labels of this group's nodes. They need no release on the node."""
    check_domain(plan.label_domain)
    return hardware_labels(group.target, plan.label_domain, plan.release)


def selector_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """What a pod asks for that mounts this group's release from its node."""
    labels = {_key(plan, "group"): group.name, _key(plan, "release"): group.release_id or ""}
    return {key: label_value(value) for key, value in labels.items()}


def release_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """What is true of a node only while it serves the verified release of this group."""
    versions = {
        _key(plan, f"package.{wheel.package}"): label_value(wheel.wheel_version)
        for wheel in group.wheels
    }
    return dict(sorted({**selector_labels(plan, group), **versions}.items()))


def node_labels(plan: Plan, group: PlannedGroup, *, verified: bool = True) -> dict[str, str]:
    """The labels of a node of this group, keys with their domain, sorted.

    Without the verified release it keeps those that say what its hardware is.
    """
    release = release_labels(plan, group) if verified else {}
    return dict(sorted({**class_labels(plan, group), **release}.items()))


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


def label_key(domain: str, name: str, release: str) -> str:
    """The key of one of our labels.

    Releases that live side by side on a node must not share a label: not even the class, since the
    packages of one may tell rungs apart that are the same to those of another.
    """
    suffix = "" if release == "default" else f".{release}"
    return f"{domain}/{label_value(name + suffix)}"


def _key(plan: Plan, name: str) -> str:
    return label_key(plan.label_domain, name, plan.release)
