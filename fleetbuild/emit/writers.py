"""The writers of our kinds: each takes an `Emission` and returns its files.

`kinds.py` has the table that names them; a plug-in's writer is called in the same way.
"""

from __future__ import annotations

from fleetbuild.emit.dra import FILE as DEVICE_CLASSES
from fleetbuild.emit.dra import device_classes, no_limits
from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.emit.karpenter import node_pools
from fleetbuild.emit.kueue import FILE as FLAVORS
from fleetbuild.emit.kueue import resource_flavors
from fleetbuild.emit.labeller import labeller_files
from fleetbuild.emit.policy import FILE as POLICY
from fleetbuild.emit.policy import wants_policy
from fleetbuild.emit.rbac import login_files
from fleetbuild.kubernetes.cluster_builds import cluster_builds
from fleetbuild.kubernetes.labels.feature_files import feature_files, needs_permission
from fleetbuild.kubernetes.labels.node_facts import NOT_PUBLISHED
from fleetbuild.kubernetes.labels.rules import FILE as RULES
from fleetbuild.kubernetes.labels.rules import node_feature_rule
from fleetbuild.kubernetes.manifests.containerfile import containers as container_files
from fleetbuild.kubernetes.manifests.containerfile import index_warnings
from fleetbuild.kubernetes.manifests.options import Delivery
from fleetbuild.kubernetes.manifests.render import (
    import_warnings,
    node_warnings,
    render,
    render_helm,
    render_kustomize,
    render_labels,
    warnings,
)
from fleetbuild.kubernetes.manifests.snippets import snippets
from fleetbuild.store.release_files import release_files
from fleetbuild.text import fold


def k8s(emission: Emission) -> EmittedFiles:
    """Return the workloads of all groups with the labels."""
    plan, serving, delivery = emission.plan, emission.serving, emission.delivery
    wheels = release_files(plan, emission.store)
    files = render(plan, serving=serving, delivery=delivery, wheels=wheels, whole=emission.whole)
    messages = warnings(plan, serving=serving, delivery=delivery, wheels=wheels)
    about_imports = import_warnings(plan, wheels)
    return EmittedFiles(files, (*messages, *about_imports, *emission.libraries(wheels)))


def kustomize(emission: Emission) -> EmittedFiles:
    """Return a Kustomize component for each group, and the same workloads as overlays."""
    plan, delivery = emission.plan, emission.delivery
    wheels = release_files(plan, emission.store)
    messages = warnings(plan, delivery=delivery, wheels=wheels)
    files = render_kustomize(plan, delivery=delivery, wheels=wheels)
    about_imports = import_warnings(plan, wheels)
    return EmittedFiles(files, (*messages, *about_imports, *emission.libraries(wheels)))


def helm(emission: Emission) -> EmittedFiles:
    """Return a values file for each group, for a Helm chart of the user."""
    plan, delivery = emission.plan, emission.delivery
    wheels = release_files(plan, emission.store)
    messages = warnings(plan, delivery=delivery, wheels=wheels)
    files = render_helm(plan, delivery=delivery, wheels=wheels)
    return EmittedFiles(files, (*messages, *emission.libraries(wheels)))


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


def affinity(emission: Emission) -> EmittedFiles:
    """Return selectors and affinity to paste into manifests."""
    runtime_class = emission.delivery.runtime_class
    return EmittedFiles(snippets(emission.plan, runtime_class=runtime_class))


def containers(emission: Emission) -> EmittedFiles:
    """Return what each group's images are built from."""
    plan, delivery = emission.plan, emission.delivery
    wheels, messages = emission.releases("image")
    about_indexes = index_warnings(plan, delivery, wheels)
    files = container_files(plan, delivery, wheels)
    return EmittedFiles(files, (*messages, *about_indexes, *emission.libraries(wheels)))


def builds(emission: Emission) -> EmittedFiles:
    """Write the plan's builds as Jobs in the cluster."""
    return EmittedFiles(*cluster_builds(emission.plan, emission.delivery.pods))


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


def nodepools(emission: Emission) -> EmittedFiles:
    """Return Karpenter's pools, and tags for cluster-autoscaler."""
    return EmittedFiles(*node_pools(emission.plan, emission.delivery.node_class))


def rbac(emission: Emission) -> EmittedFiles:
    """Return the files of fleetbuild's login."""
    return login(emission.plan.label_domain, emission.delivery)


def login(label_domain: str, delivery: Delivery) -> EmittedFiles:
    """Return the files of fleetbuild's login. They depend on no plan."""
    return EmittedFiles(login_files(label_domain, delivery.namespace))


def labeller(emission: Emission) -> EmittedFiles:
    """Return a Deployment that labels Nodes from within the cluster."""
    return EmittedFiles(labeller_files(emission.plan, emission.config, emission.delivery))


def policy(emission: Emission) -> EmittedFiles:
    """Return a policy that places pods with the label `wants`."""
    if text := wants_policy(emission.plan, emission.delivery):
        return EmittedFiles({POLICY: text})
    return EmittedFiles({}, ("The plan has no group, so no policy is written.",))
