"""The writers of the kinds for Kubernetes: each takes an `Emission` and returns its files.

The extension has the table that names them. `delivery` is how a release gets into a pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.extensions.kubernetes.cluster_builds import cluster_builds
from fleetbuild.extensions.kubernetes.config import Kubernetes
from fleetbuild.extensions.kubernetes.emit.dra import FILE as DEVICE_CLASSES
from fleetbuild.extensions.kubernetes.emit.dra import device_classes, no_limits
from fleetbuild.extensions.kubernetes.emit.karpenter import node_pools
from fleetbuild.extensions.kubernetes.emit.kueue import FILE as FLAVORS
from fleetbuild.extensions.kubernetes.emit.kueue import resource_flavors
from fleetbuild.extensions.kubernetes.emit.labeller import labeller_files
from fleetbuild.extensions.kubernetes.emit.policy import FILE as POLICY
from fleetbuild.extensions.kubernetes.emit.policy import wants_policy
from fleetbuild.extensions.kubernetes.emit.rbac import login_files
from fleetbuild.extensions.kubernetes.labels.feature_files import feature_files, needs_permission
from fleetbuild.extensions.kubernetes.labels.node_facts import NOT_PUBLISHED
from fleetbuild.extensions.kubernetes.labels.rules import FILE as RULES
from fleetbuild.extensions.kubernetes.labels.rules import node_feature_rule
from fleetbuild.extensions.kubernetes.manifests.containerfile import containers as container_files
from fleetbuild.extensions.kubernetes.manifests.containerfile import index_warnings
from fleetbuild.extensions.kubernetes.manifests.images import library_warnings
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import (
    import_warnings,
    node_warnings,
    render,
    render_kustomize,
    render_labels,
    warnings,
)
from fleetbuild.extensions.kubernetes.manifests.snippets import snippets
from fleetbuild.models import Plan, ReleaseFile
from fleetbuild.store.release_files import release_files
from fleetbuild.text import fold

_DEFAULT = Delivery()


def _of_site(emission: Emission, delivery: Delivery) -> Delivery:
    """Return the delivery with what fleetbuild.yml says of all pods."""
    return replace(delivery, pods=emission.config.section(Kubernetes).pods)


def _libraries(
    plan: Plan, delivery: Delivery, wheels: Mapping[str, Sequence[ReleaseFile]]
) -> tuple[str, ...]:
    """Return warnings about libraries that the image lacks; with --image a comment says so."""
    if delivery.image or delivery.way == "image":
        return ()
    return library_warnings(plan, wheels)


def k8s(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return the workloads of all groups with the labels."""
    plan, serving, delivery = emission.plan, emission.serving, _of_site(emission, delivery)
    wheels = release_files(plan, emission.store)
    files = render(plan, serving=serving, delivery=delivery, wheels=wheels, whole=emission.whole)
    messages = warnings(plan, serving=serving, delivery=delivery, wheels=wheels)
    about_imports = import_warnings(plan, wheels)
    return EmittedFiles(files, (*messages, *about_imports, *_libraries(plan, delivery, wheels)))


def kustomize(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return a Kustomize component for each group, and the same workloads as overlays."""
    plan, delivery = emission.plan, _of_site(emission, delivery)
    wheels = release_files(plan, emission.store)
    messages = warnings(plan, delivery=delivery, wheels=wheels)
    files = render_kustomize(plan, delivery=delivery, wheels=wheels)
    about_imports = import_warnings(plan, wheels)
    return EmittedFiles(files, (*messages, *about_imports, *_libraries(plan, delivery, wheels)))


def labels(emission: Emission) -> EmittedFiles:
    """Return the labels of the nodes, as a script and as Nodes to apply."""
    plan, serving = emission.plan, emission.serving
    return EmittedFiles(render_labels(plan, serving), node_warnings(plan, serving))


def nfd(emission: Emission) -> EmittedFiles:
    """Write files and rules for Node Feature Discovery (NFD)."""
    plan, serving = emission.plan, emission.serving
    hidden = [name for name, node in plan.nodes.items() if NOT_PUBLISHED in node.warnings]
    messages = (
        *node_warnings(plan, serving),
        *([f"{fold(hidden)}: {NOT_PUBLISHED}"] if hidden else []),
        *filter(None, [needs_permission(plan.label_domain)]),
    )
    return EmittedFiles({**feature_files(plan, serving), RULES: node_feature_rule(plan)}, messages)


def affinity(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return selectors and affinity to paste into manifests."""
    return EmittedFiles(snippets(emission.plan, runtime_class=delivery.runtime_class))


def containers(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return what each group's images are built from."""
    plan, delivery = emission.plan, _of_site(emission, delivery)
    wheels, messages = emission.releases("image")
    about_indexes = index_warnings(plan, delivery, wheels)
    files = container_files(plan, delivery, wheels)
    return EmittedFiles(files, (*messages, *about_indexes, *_libraries(plan, delivery, wheels)))


def builds(emission: Emission) -> EmittedFiles:
    """Write the plan's builds as Jobs in the cluster."""
    return EmittedFiles(*cluster_builds(emission.plan, emission.config.section(Kubernetes).pods))


def dra(emission: Emission) -> EmittedFiles:
    """Write a DeviceClass per SM."""
    if text := device_classes(emission.plan):
        without = no_limits(emission.plan.label_domain)
        return EmittedFiles({DEVICE_CLASSES: text}, (without,) if without else ())
    return EmittedFiles({}, ("No group of the plan uses a GPU, so no DeviceClass is written.",))


def kueue(emission: Emission) -> EmittedFiles:
    """Write a ResourceFlavor per class."""
    if text := resource_flavors(emission.plan):
        return EmittedFiles({FLAVORS: text})
    return EmittedFiles({}, ("No group of the plan has wheels, so no flavor is written.",))


def nodepools(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return Karpenter's pools, and tags for cluster-autoscaler."""
    return EmittedFiles(*node_pools(emission.plan, delivery.node_class))


def rbac(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return the files of fleetbuild's login."""
    return login(emission.plan.label_domain, delivery)


def login(label_domain: str, delivery: Delivery) -> EmittedFiles:
    """Return the files of fleetbuild's login. They depend on no plan."""
    return EmittedFiles(login_files(label_domain, delivery.namespace))


def labeller(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return a Deployment that labels Nodes from within the cluster."""
    delivery = _of_site(emission, delivery)
    return EmittedFiles(labeller_files(emission.plan, emission.config, delivery))


def policy(emission: Emission, *, delivery: Delivery = _DEFAULT) -> EmittedFiles:
    """Return a policy that places pods with the label `wants`."""
    if text := wants_policy(emission.plan, _of_site(emission, delivery)):
        return EmittedFiles({POLICY: text})
    return EmittedFiles({}, ("The plan has no group, so no policy is written.",))
