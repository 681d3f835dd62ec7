"""A Kustomize component for each group, and smoke workloads that use them: a base with overlays.

In: a plan and the pod parts of each group. Out: file names and texts. A component changes workloads
by their label `wants`, so no file of the user is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetbuild.extensions.kubernetes.labels.node_labels import label_key
from fleetbuild.extensions.kubernetes.manifests.names import label_value
from fleetbuild.extensions.kubernetes.manifests.options import PodParts, WorkloadKind
from fleetbuild.extensions.kubernetes.manifests.pod_settings import (
    with_cpu_limit,
    with_object_settings,
    with_pod_settings,
)
from fleetbuild.extensions.kubernetes.manifests.workload import (
    CONTAINER,
    KINDS,
    bare_pod,
    environment,
    group_name,
    job_suffix,
    object_name,
    readiness,
    update_strategy,
    updates,
    with_image,
    workload,
)
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import Plan, PlannedGroup
from fleetbuild.models.plan import version_skew

Delivered = tuple[PlannedGroup, PodParts, str]

ANY = "any"  # the value of `wants` in a base whose overlays name one component each
# Where a pod template stands. Kustomize reads a kind as a regular expression.
_PLACES = {
    "pod-template.yaml": ("apps/v1", "Deployment|ReplicaSet|StatefulSet|Job"),
    "daemonset.yaml": ("apps/v1", "DaemonSet"),
    "cronjob.yaml": ("batch/v1", "CronJob"),
    "pod.yaml": ("v1", "Pod"),
}

_ALL = """\
The smoke workloads of all groups: kubectl apply -k .
The smoke workload of one group: kubectl apply -k overlays/GROUP
For workloads of your own: components/GROUP.
Labels are not included: `fleetbuild emit labels` writes the labels of verified nodes."""
_BASE = """\
The parts of the smoke workload that all groups share. It cannot run by itself: nodes and packages
come from a component, by the label {key}."""
_OVERLAY = """\
The smoke workload of the group {group}: its component, a name, and a label of its pods."""
_SMOKE = """\
The modules to import in the group {group}.{updates}"""
_COMPONENT = """\
The nodes and packages of the group {group}, for workloads of your own. Name this
folder in your kustomization.yaml:
  components: [PATH/components/{value}]
It changes each workload that has one of these labels in its own metadata:
  {key}: {value}
  {key}: {any}    (where each overlay of yours names the component of one group)
and there the container {container}, which asks for its GPUs itself. The component's values replace
these of the workload: {replaced}. All else is added.

{about}"""


def kustomization(plan: Plan, kind: WorkloadKind, delivered: Sequence[Delivered]) -> dict[str, str]:
    """Return {file name: text}: components/GROUP/, base/, overlays/GROUP/, and all overlays."""
    overlays = [f"overlays/{label_value(group.name)}" for group, *_ in delivered]
    about = "\n".join((_ALL, *version_skew(plan.groups)))
    files = {"kustomization.yaml": kustomization_file(overlays, about)}
    if delivered:
        files |= _base(plan, kind, delivered[0])
    for folder, (group, parts, image) in zip(overlays, delivered, strict=True):
        files |= _component(plan, group, parts, image)
        needs = parts.of(kind)
        ending = job_suffix(kind, needs, image)
        files[f"{folder}/kustomization.yaml"] = _overlay(plan, group, ending)
        files[f"{folder}/patch.yaml"] = _smoke(plan, kind, group, needs, image)
    return dict(sorted(files.items()))


def kustomization_file(resources: list[str], header: str, **more: Any) -> str:
    """Return a kustomization.yaml."""
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
        **more,
    }
    return dump(document, header)


def _component(plan: Plan, group: PlannedGroup, parts: PodParts, image: str) -> dict[str, str]:
    """Return the component of a group, with a patch for each place of a pod template."""
    key, value = label_key(plan.label_domain, "wants", plan.release), label_value(group.name)
    label = {label_key(plan.label_domain, "group", plan.release): value}
    files, patches = {}, []
    for name, (version, kinds) in _PLACES.items():
        kind = kinds.partition("|")[0]
        needs = parts.of(kind)
        pod = {"metadata": {"labels": label}, "spec": _pod(needs, image)}
        head = {"apiVersion": version, "kind": kind}
        about = needs.about.removeprefix(parts.about).strip()  # kustomization.yaml has the rest
        files[name] = dump({**head, **_around(kind, pod)}, about)
        target = {"kind": kinds, "labelSelector": f"{key} in ({value},{ANY})"}
        patches.append({"path": name, "target": target})
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": patches,
    }
    replaced = {
        "image": parts.image,
        "PYTHONPATH": not parts.image,
        "folders for what packages compile": True,
        "tolerations": parts.tolerations,
        "runtimeClassName": parts.runtime_class,
    }
    header = _COMPONENT.format(
        group=group.name,
        key=key,
        value=value,
        any=ANY,
        container=CONTAINER,
        replaced=", ".join(name for name, present in replaced.items() if present),
        about=parts.about,
    )
    files["kustomization.yaml"] = dump(component, header)
    return {f"components/{value}/{name}": text for name, text in files.items()}


def _around(kind: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a workload around a pod. A patch with a target has any name."""
    if kind == "Pod":
        return {**pod, "metadata": {"name": ANY, **pod["metadata"]}}
    spec: dict[str, Any] = {"template": pod}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"metadata": {"name": ANY}, "spec": spec}


def _pod(parts: PodParts, image: str) -> dict[str, Any]:
    """Return what a pod of the group needs. Kustomize merges containers and volumes by name."""
    container: dict[str, Any] = {"name": CONTAINER}
    if parts.image:
        container["image"] = parts.image
    container["env"] = environment(parts)
    if parts.mount:
        container["volumeMounts"] = [Note(parts.mount, parts.why_mount)]
    pod: dict[str, Any] = {"nodeSelector": Note(dict(parts.selector), parts.why_selector)}
    if parts.tolerations:
        pod["tolerations"] = list(parts.tolerations)
    if parts.runtime_class:
        pod["runtimeClassName"] = parts.runtime_class
    if parts.init_container:
        container_ = with_image(parts.init_container, image)
        pod["initContainers"] = [with_cpu_limit(container_, parts.pods)]
    pod["containers"] = [container]
    if parts.volume:
        pod["volumes"] = [parts.volume]
    return pod


def _base(plan: Plan, kind: WorkloadKind, first: Delivered) -> dict[str, str]:
    _, parts, image = first
    key = label_key(plan.label_domain, "wants", plan.release)
    pod = with_pod_settings(bare_pod(kind, image, parts.imports), parts.pods, tolerates=False)
    document = with_object_settings(workload(kind, object_name(plan), pod), parts.pods)
    metadata = document["metadata"]
    document["metadata"] = {**metadata, "labels": {**metadata["labels"], key: ANY}}
    return {
        "base/kustomization.yaml": kustomization_file(["workload.yaml"], ""),
        "base/workload.yaml": dump(document, _BASE.format(key=key)),
    }


def _overlay(plan: Plan, group: PlannedGroup, ending: str) -> str:
    label = {label_key(plan.label_domain, "group", plan.release): label_value(group.name)}
    return kustomization_file(
        ["../../base"],
        _OVERLAY.format(group=group.name),
        components=[f"../../components/{label_value(group.name)}"],
        nameSuffix=f"-{group_name(group, ending)}{ending}",
        labels=[{"pairs": label, "includeSelectors": True, "includeTemplates": True}],
        patches=[{"path": "patch.yaml"}],
    )


def _smoke(plan: Plan, kind: WorkloadKind, group: PlannedGroup, parts: PodParts, image: str) -> str:
    """Return what the smoke workload of a group has beside the component."""
    version, title = KINDS[kind]
    container: dict[str, Any] = {"name": CONTAINER, "image": image, "args": list(parts.imports)}
    if kind != "job":
        container["readinessProbe"] = {"exec": readiness(parts.imports)}
    if parts.limits:
        container["resources"] = {"limits": dict(parts.limits)}
    document = {
        "apiVersion": version,
        "kind": title,
        "metadata": {"name": object_name(plan)},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            **update_strategy(kind, parts),
        },
    }
    return dump(document, _SMOKE.format(group=group.name, updates=updates(parts)))
