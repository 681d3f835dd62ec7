"""Node selectors and affinity: where a pod may run and where it should, by one kind of label.

release  fleetbuild's: nodes where this release is verified; for pods that mount it
group    fleetbuild's: nodes that serve a verified release of the group; for DaemonSets
class    fleetbuild's, by hardware alone: for pods that bring their packages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fleetbuild.extensions.kubernetes.labels.classes import HardwareClass, class_of_target
from fleetbuild.extensions.kubernetes.labels.features import GPU, GPU_TOLERATION
from fleetbuild.extensions.kubernetes.labels.node_labels import (
    class_labels,
    label_key,
    selector_labels,
)
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models import Plan, PlannedGroup, Target

By = Literal["release", "group", "class"]

# What Kubernetes calls the architectures that the kernel names.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_BEST = 100  # a preference weighs 1 to 100

Term = Mapping[str, Sequence[str]]  # label -> the values of which it must have one


def selector(plan: Plan, group: PlannedGroup, by: By = "class") -> dict[str, str]:
    """Return the nodeSelector of a pod with this group's wheels."""
    target = group.target
    if by == "release":
        return {**_platform(target), **selector_labels(plan, group)}
    if by == "group":
        key = label_key(plan.label_domain, "group", plan.release)
        return {**_platform(target), key: selector_labels(plan, group)[key]}
    key = label_key(plan.label_domain, "class", plan.release)
    return {**_platform(target), key: class_labels(plan, group)[key]}


def affinity(plan: Plan, groups: Sequence[PlannedGroup], by: By = "class") -> dict[str, Any]:
    """Return the nodeAffinity of a workload that runs with the wheels of any of these groups.

    Required: where it runs at all. Preferred: where it is expected to run fastest, by the newer SM,
    then by the better rung. Nothing was measured.
    """
    ranked = _ranked(groups)
    weights = {
        each: max(1, round(_BEST * (len(ranked) - place) / len(ranked)))
        for place, each in enumerate(ranked)
    }
    preferred = [
        {
            "weight": weight,
            "preference": _expressions(
                _term(plan, _members(groups, each), by), beyond_platform=True
            ),
        }
        for each, weight in weights.items()
    ]
    required = _expressions(_term(plan, groups, by))
    node: dict[str, Any] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [required]}
    }
    if len(ranked) > 1:  # among one there is nothing to prefer
        node["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {"nodeAffinity": node}


def gpu_limits(target: Target, count: int = 1) -> dict[str, int]:
    """Return the limits of a container; without one it sees no GPU."""
    return {GPU: count} if target.sms else {}


def pod_fields(target: Target, runtime_class: str | None = None) -> dict[str, Any]:
    """Return the fields that a pod with GPU code needs beside its selector.

    GPU nodes often have a taint named after their resource. A RuntimeClass is needed only if
    NVIDIA's runtime is not the cluster's default.
    """
    if not target.sms:
        return {}
    fields: dict[str, Any] = {"tolerations": [GPU_TOLERATION]}
    return {**fields, "runtimeClassName": runtime_class} if runtime_class else fields


def _ranked(groups: Sequence[PlannedGroup]) -> list[HardwareClass]:
    """Return the classes, the one expected to be fastest first."""
    classes_ = {class_of_target(group.target) for group in groups}
    return sorted(classes_, key=_speed, reverse=True)


def _speed(each: HardwareClass) -> tuple[object, ...]:
    slowest = sm_order(each.sms[0]) if each.sms else (0, 0)
    return slowest, len(each.rung.lineage), each.name


def _members(groups: Sequence[PlannedGroup], each: HardwareClass) -> list[PlannedGroup]:
    return [group for group in groups if class_of_target(group.target) == each]


def _term(plan: Plan, groups: Sequence[PlannedGroup], by: By) -> Term:
    """Return the term for the nodes of any of these groups."""
    wanted = [selector(plan, group, by) for group in groups]
    return {key: sorted({each[key] for each in wanted}) for key in wanted[0]}


def _expressions(term: Term, *, beyond_platform: bool = False) -> dict[str, Any]:
    """Return the term's expressions.

    A preference leaves out the platform, which is required anyway.
    """
    more = {key: values for key, values in term.items() if not key.startswith("kubernetes.io/")}
    shown = more if more and beyond_platform else term
    return {
        "matchExpressions": [
            {"key": key, "operator": "In", "values": values} for key, values in shown.items()
        ]
    }


def _platform(target: Target) -> dict[str, str]:
    arch = ARCHITECTURES.get(target.arch, target.arch)
    return {"kubernetes.io/os": "linux", "kubernetes.io/arch": arch}
