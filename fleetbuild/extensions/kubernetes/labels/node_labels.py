"""The labels of a node, as a kubectl script and as Node patches.

In: a plan and the labels of each node. Out: texts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetbuild.errors import ConfigError
from fleetbuild.extensions.kubernetes.manifests.names import (
    LABEL_LIMIT,
    dns_label,
    is_subdomain,
    label_part,
    label_value,
)
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import comment, dump
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models import Plan, PlannedGroup, Target

FIELD_MANAGER = "fleetbuild"
DEFAULT_DOMAIN = "fleetbuild.dev"

_SCRIPT_HEADER = """\
Sets labels, one line per node: its hardware (class, isa), and its release if a verified one serves,
so that pods which mount the release are scheduled there. KEY- removes what an earlier run may have
set for a release that does not serve any more; of a label that is not there, kubectl only says so.
Which release serves is the node's last answer. It can run any number of times and changes no label
but these of {domain}/. It needs kubectl and a login that may label nodes:
    sh labels.sh
"""

_PATCHES_HEADER = """\
The same labels as labels.sh, for server-side apply with a field manager of their own: a label that
a later file does not have is removed, and other owners' labels stay:
    kubectl apply --server-side --field-manager={manager} -f nodes.yaml
All these nodes must exist: apply would create a missing Node object. `emit k8s` and `apply` do not
write this file, so their folders are safe to apply.
"""


@dataclass(frozen=True)
class NodeLabels:
    """The labels to set on a Node, and fleetbuild's labels to remove from it."""

    on: Mapping[str, str]
    off: tuple[str, ...] = ()


def class_name(isa: str, sms: Sequence[str]) -> str:
    """Return the name of a hardware class: sm86-avx2, sm80.sm90-avx512, cpu-avx."""
    gpu = ".".join("sm" + sm.replace(".", "") for sm in sorted(sms, key=sm_order))
    return f"{gpu or 'cpu'}-{isa}"


def hardware_labels(target: Target, domain: str, release: str = "default") -> dict[str, str]:
    """Return the labels that CPU and GPUs alone decide."""
    return labels_of_class(target.isa, target.sms, domain, release)


def labels_of_class(isa: str, sms: Sequence[str], domain: str, release: str) -> dict[str, str]:
    """Return the labels of a hardware class's nodes."""
    return {
        label_key(domain, "class", release): label_value(class_name(isa, sms)),
        label_key(domain, "isa", release): label_value(isa),
    }


def class_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """Return the hardware labels of this group's nodes. They need no release on the node."""
    check_domain(plan.label_domain)
    return hardware_labels(group.target, plan.label_domain, plan.release)


def selector_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """Return the labels that a pod selects by if it mounts this group's release from its node."""
    labels = {_key(plan, "group"): group.name, _key(plan, "release"): group.release_id or ""}
    return {key: label_value(value) for key, value in labels.items()}


def release_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """Return the labels of a node while it serves the verified release of this group."""
    versions = package_labels(plan, group) if plan.package_labels else {}
    return dict(sorted({**selector_labels(plan, group), **versions}.items()))


def package_labels(plan: Plan, group: PlannedGroup) -> dict[str, str]:
    """Return a label for each planned package, with its version."""
    return {
        package_key(plan.label_domain, wheel.package, plan.release): label_value(
            wheel.wheel_version
        )
        for wheel in group.wheels
    }


def node_labels(plan: Plan, group: PlannedGroup, *, verified: bool = True) -> dict[str, str]:
    """Return the labels of a node of this group; without a verified release, its hardware's."""
    release = release_labels(plan, group) if verified else {}
    return dict(sorted({**class_labels(plan, group), **release}.items()))


def label_script(plan: Plan, nodes: Mapping[str, NodeLabels]) -> str:
    """Return labels.sh: a POSIX script with one `kubectl label` per node."""
    lines = ["#!/bin/sh", *comment(_SCRIPT_HEADER.format(domain=plan.label_domain)), "failed=0"]
    for node, labels in sorted(nodes.items()):
        on = (f"{key}={value}" for key, value in labels.on.items())
        off = (f"{key}-" for key in labels.off)
        command = shlex.join(["kubectl", "label", "--overwrite", "node", node, *on, *off])
        lines.append(f"{command} || failed=1")
    if not nodes:
        lines.append("echo 'No node is planned for: nothing to label.'")
    return "\n".join([*lines, 'exit "$failed"']) + "\n"


def node_patches(plan: Plan, nodes: Mapping[str, NodeLabels]) -> str:
    """Return nodes.yaml: a document per Node, with fleetbuild's labels only."""
    documents = [
        dump(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node, "labels": dict(labels.on)},
            }
        )
        for node, labels in sorted(nodes.items())
    ]
    manager = field_manager(plan.release, plan.label_domain)
    if plan.facts_source == "cluster":  # it states hardware alone, and removes nobody's release
        manager = manager.replace(FIELD_MANAGER, f"{FIELD_MANAGER}.cluster", 1)
    about = _PATCHES_HEADER.format(manager=manager)
    header = "\n".join(comment(about)) + "\n"
    return header + "---\n".join(documents)


def kubernetes_name(plan: Plan, node: str) -> str:
    """Return a host's Node name, in lower case as kubelets write it."""
    planned = plan.nodes.get(node)
    return ((planned.kubernetes_node if planned else None) or node).lower()


def check_domain(domain: str) -> None:
    """Refuse a label domain that the API would refuse."""
    if not is_subdomain(domain):
        raise ConfigError(
            f"kubernetes.label_domain is {domain!r}, which is not a valid prefix of a label.",
            "Use a DNS name: lower case letters, digits, dashes and dots, such as fleetbuild.dev.",
        )


def is_reserved(domain: str) -> bool:
    """Return whether Kubernetes keeps this prefix for itself, as node-restriction.kubernetes.io.

    A kubelet may not set such labels, Node Feature Discovery only if its configuration names them.
    """
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def field_manager(release: str, domain: str) -> str:
    """Return the owner of the labels of a release of this name in this domain.

    Each release and each domain has its own: an apply removes the labels that its manager no longer
    states, also labels of another user of the cluster.
    """
    name = FIELD_MANAGER if release == "default" else f"{FIELD_MANAGER}-{release}"
    return name if domain == DEFAULT_DOMAIN else f"{name}@{label_part(domain, 50)}"


def state_annotation(domain: str, release: str) -> str:
    """Return the key of the annotation that names whose state set a Node's release labels."""
    return label_key(domain, "state", release)


def label_key(domain: str, name: str, release: str) -> str:
    """Return the key of one of fleetbuild's labels.

    Releases side by side on a node share no label, not even the class: the packages of one release
    can separate rungs that are the same for another.
    """
    return f"{domain}/{name}{_suffix(release)}"


def package_key(domain: str, package: str, release: str) -> str:
    """Return the key of the label with a package's version.

    A long package name is cut, never the release's name, which identifies the label's owner.
    """
    suffix = _suffix(release)
    room = LABEL_LIMIT - len("package.") - len(suffix)
    return f"{domain}/package.{dns_label(package, room)}{suffix}"


def _suffix(release: str) -> str:
    return "" if release == "default" else f".{label_part(release, 40)}"


def _key(plan: Plan, name: str) -> str:
    return label_key(plan.label_domain, name, plan.release)
