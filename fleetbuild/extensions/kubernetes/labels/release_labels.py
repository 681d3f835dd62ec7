"""The labels of the release that serves on a node, by its manifest, even if no plan knows it.

In: a plan and the manifest of each host. Out: labels of each Node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetbuild.extensions.kubernetes.labels.classes import hardware_of_hosts
from fleetbuild.extensions.kubernetes.labels.node_labels import (
    NodeLabels,
    kubernetes_name,
    label_key,
    package_key,
    package_labels,
    selector_labels,
)
from fleetbuild.extensions.kubernetes.manifests.names import is_subdomain, label_value
from fleetbuild.models import Manifest, Plan
from fleetbuild.models.serving import Serving, as_planned, hosts

DEFAULT = "default"


def served_labels(manifest: Manifest, domain: str, *, packages: bool) -> dict[str, str]:
    """Return the labels of a node while this verified release serves, as node_labels has them.

    With `packages`, also a label for each planned package.
    """
    release = manifest.release
    wheels = manifest.wheels if packages else ()
    values = {
        label_key(domain, "group", release): manifest.group,
        label_key(domain, "release", release): manifest.id,
        **{package_key(domain, wheel.package, release): wheel.version for wheel in wheels},
    }
    return {key: label_value(value) for key, value in sorted(values.items())}


def verified_labels(manifest: Manifest | None, plan: Plan) -> dict[str, str]:
    """Return the release labels of a node that serves this; {} before it is verified."""
    if not manifest or not manifest.verified:
        return {}
    return served_labels(manifest, plan.label_domain, packages=plan.package_labels)


def labels_by_node(plan: Plan, serving: Serving | None) -> dict[str, NodeLabels]:
    """Return the labels of each Node, by its name in the cluster."""
    times = Counter(kubernetes_name(plan, host) for host in hosts(plan))
    return {
        name: labels
        for host, labels in labelled_hosts(plan, serving)
        # A name that two hosts claim, or that no node can have, gets no labels: see warnings().
        if times[name := kubernetes_name(plan, host)] == 1 and is_subdomain(name)
    }


def labelled_hosts(plan: Plan, serving: Serving | None) -> Iterator[tuple[str, NodeLabels]]:
    """Yield each host whose release is known, with its hardware and release labels.

    A plan from a cluster knows of no release on a node, and takes off no label of one.
    """
    serving = as_planned(plan) if serving is None else serving
    hardware = hardware_of_hosts(plan)
    groups = () if plan.facts_source == "cluster" else plan.groups
    # Package labels too: the plan before may have set them.
    ours = sorted(
        {
            key
            for group in groups
            for key in (*selector_labels(plan, group), *package_labels(plan, group))
        }
    )
    for host in hosts(plan):
        if host in serving:
            release = verified_labels(serving[host], plan)
            on = dict(sorted({**hardware.get(host, {}), **release}.items()))
            yield host, NodeLabels(on, tuple(key for key in ours if key not in on))


def is_release_label(key: str, domain: str) -> bool:
    """Return whether a label holds only while a release is there."""
    prefix, _, name = key.partition("/")
    return prefix == domain and name.partition(".")[0] in ("group", "release", "package")


def is_label_of(key: str, release: str, domain: str) -> bool:
    """Return whether a label belongs to this release and to no other beside it."""
    kind, _, rest = key.removeprefix(f"{domain}/").partition(".")
    if kind == "package":
        return key == package_key(domain, rest.partition(".")[0], release)
    return kind in ("group", "release") and key == label_key(domain, kind, release)


def is_hardware_label(key: str, release: str, domain: str) -> bool:
    """Return whether this release states this label about the hardware."""
    return key in (label_key(domain, name, release) for name in ("class", "isa"))
