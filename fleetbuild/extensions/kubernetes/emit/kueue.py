"""Kueue: a ResourceFlavor for each hardware class of a plan. In: a plan. Out: YAML."""

from __future__ import annotations

from fleetbuild.extensions.kubernetes.labels.affinity import ARCHITECTURES
from fleetbuild.extensions.kubernetes.labels.classes import HardwareClass, classes
from fleetbuild.extensions.kubernetes.labels.features import GPU, GPU_TOLERATION
from fleetbuild.extensions.kubernetes.labels.node_labels import check_domain, labels_of_class
from fleetbuild.extensions.kubernetes.manifests.names import dns_label, object_head
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import dump
from fleetbuild.models import Plan

FILE = "resourceflavors.yaml"

_HEADER = """\
A ResourceFlavor for each hardware class, so that Kueue counts quota by class and sends each
workload to nodes that its wheels run on. Needs a Kueue that serves v1beta2, and the class labels of
`fleetbuild emit nfd` or `emit labels`.
    kubectl apply -f {file}

Name them in a ClusterQueue, with quotas of your own, in the order in which Kueue shall try them:
    resourceGroups:
      - coveredResources: {covered}
        flavors:
{flavors}
A workload of `emit k8s` with --way image, volume or init names its class, so Kueue gives it the
flavor of that class alone. One that mounts a release from its node names the release instead: add
the label of its class to its nodeSelector."""


def resource_flavors(plan: Plan) -> str | None:
    """Return resourceflavors.yaml, or None if the plan has no class."""
    check_domain(plan.label_domain)
    ours = classes(plan)
    if not ours:
        return None
    covered = ["cpu", "memory", *([GPU] if any(class_.sms for class_ in ours) else [])]
    names = (flavor_name(plan, class_) for class_ in ours)
    header = _HEADER.format(
        file=FILE,
        covered=f"[{', '.join(covered)}]",
        flavors="\n".join(f"          - name: {name}" for name in names),
    )
    first, *rest = (_flavor(plan, class_) for class_ in ours)
    return "---\n".join([dump(first, header), *map(dump, rest)])


def flavor_name(plan: Plan, each: HardwareClass) -> str:
    """Return the name of a class as an object of the cluster."""
    release = [] if plan.release == "default" else [dns_label(plan.release, 20)]
    return "-".join([dns_label(each.name, 40), *release])


def node_labels_of(plan: Plan, each: HardwareClass) -> dict[str, str]:
    """Return the labels by which nodes of a class are known."""
    arch = ARCHITECTURES[each.rung.arch]
    ours = labels_of_class(each.rung.name, each.sms, plan.label_domain, plan.release)
    return {"kubernetes.io/arch": arch, **ours}


def _flavor(plan: Plan, each: HardwareClass) -> dict[str, object]:
    spec: dict[str, object] = {"nodeLabels": node_labels_of(plan, each)}
    if each.sms:
        spec["tolerations"] = [GPU_TOLERATION]
    return {
        **object_head("kueue.x-k8s.io/v1beta2", "ResourceFlavor", name=flavor_name(plan, each)),
        "spec": spec,
    }
