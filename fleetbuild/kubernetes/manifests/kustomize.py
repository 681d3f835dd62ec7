"""A Kustomize base for all groups, and an overlay for each group.

In: a plan and the pod parts of each group. Out: file names and texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetbuild.kubernetes.labels.node_labels import label_key
from fleetbuild.kubernetes.manifests.names import label_value
from fleetbuild.kubernetes.manifests.options import Kind, PodParts
from fleetbuild.kubernetes.manifests.pod_settings import (
    with_cpu_limit,
    with_object_settings,
    with_pod_settings,
)
from fleetbuild.kubernetes.manifests.workload import (
    CONTAINER,
    KINDS,
    about,
    bare_pod,
    group_name,
    imports,
    job_suffix,
    object_name,
    python_path,
    readiness,
    update_strategy,
    with_image,
    workload,
)
from fleetbuild.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import Plan, PlannedGroup
from fleetbuild.models.plan import version_skew

Delivered = tuple[PlannedGroup, PodParts, str]

_ALL = """\
The workloads of all groups: kubectl apply -k .
The workload of one group: kubectl apply -k overlays/GROUP
Labels are not included: `fleetbuild emit labels` writes the labels of verified nodes."""
_BASE = """\
The parts that all groups share. It cannot run by itself: image, packages and nodes come from an
overlay. Put your own command and settings here; the overlays find the container by its name,
{container}."""
_OVERLAY = """\
The group {group}: its name, a label of its pods, and in patch.yaml the nodes and packages."""
_PATCH = """\
The parts that are specific to the group {group}.

{about}"""


def kustomization(plan: Plan, kind: Kind, delivered: Sequence[Delivered]) -> dict[str, str]:
    """Return {file name: text}: base/, overlays/GROUP/, and a kustomization of all overlays."""
    overlays = {f"overlays/{label_value(group.name)}": (group, needs, image)
                for group, needs, image in delivered}  # fmt: skip
    about = "\n".join((_ALL, *version_skew(plan.groups)))
    files = {"kustomization.yaml": kustomization_file(list(overlays), about)}
    if delivered:
        files |= _base(plan, kind, delivered[0])
    for folder, (group, needs, image) in overlays.items():
        ending = job_suffix(group, kind, needs, image)
        files[f"{folder}/kustomization.yaml"] = _overlay(plan, group, ending)
        files[f"{folder}/patch.yaml"] = _patch(plan, kind, group, needs, image)
    return dict(sorted(files.items()))


def _base(plan: Plan, kind: Kind, first: Delivered) -> dict[str, str]:
    group, parts, image = first
    pod = with_pod_settings(bare_pod(kind, image, imports(group)), parts.pods, tolerates=False)
    document = with_object_settings(workload(kind, object_name(plan), pod), parts.pods)
    return {
        "base/kustomization.yaml": kustomization_file(["workload.yaml"], ""),
        "base/workload.yaml": dump(document, _BASE.format(container=CONTAINER)),
    }


def kustomization_file(resources: list[str], header: str, **more: Any) -> str:
    """Return a kustomization.yaml."""
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
        **more,
    }
    return dump(document, header)


def _overlay(plan: Plan, group: PlannedGroup, ending: str) -> str:
    label = {label_key(plan.label_domain, "group", plan.release): label_value(group.name)}
    return kustomization_file(
        ["../../base"],
        _OVERLAY.format(group=group.name),
        nameSuffix=f"-{group_name(group, ending)}{ending}",
        labels=[{"pairs": label, "includeSelectors": True, "includeTemplates": True}],
        patches=[{"path": "patch.yaml"}],
    )


def _patch(plan: Plan, kind: Kind, group: PlannedGroup, parts: PodParts, image: str) -> str:
    version, title = KINDS[kind]
    document = {
        "apiVersion": version,
        "kind": title,
        "metadata": {"name": object_name(plan)},
        "spec": {
            "template": {"spec": _pod(kind, group, parts, image)},
            **update_strategy(kind, parts),
        },
    }
    return dump(document, _PATCH.format(group=group.name, about=about(parts)))


def _pod(kind: Kind, group: PlannedGroup, parts: PodParts, image: str) -> dict[str, Any]:
    """Return the part of the pod that differs from the base. Kustomize merges lists by name."""
    container: dict[str, Any] = {"name": CONTAINER, "image": image, "args": imports(group)}
    if kind != "job":
        container["readinessProbe"] = {"exec": readiness(imports(group))}
    pod: dict[str, Any] = {"nodeSelector": Note(dict(parts.selector), parts.why_selector)}
    if parts.tolerations:
        pod["tolerations"] = list(parts.tolerations)
    if parts.runtime_class:
        pod["runtimeClassName"] = parts.runtime_class
    if parts.init_container:
        container_ = with_image(parts.init_container, image)
        pod["initContainers"] = [with_cpu_limit(container_, parts.pods)]
    if variables := python_path(parts):
        container["env"] = variables
    if parts.limits:
        container["resources"] = {"limits": dict(parts.limits)}
    if parts.mount:
        container["volumeMounts"] = [Note(parts.mount, parts.why_mount)]
    pod["containers"] = [container]
    if parts.volume:
        pod["volumes"] = [parts.volume]
    return pod
