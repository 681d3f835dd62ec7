"""What a site's policies ask of emitted pods and Jobs: `kubernetes.pods` of fleetbuild.yml.

In: a pod or an object, and the settings. Out: the same with what the settings add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetbuild.extensions.kubernetes.config import Pods

_QUEUE = "kueue.x-k8s.io/queue-name"


def with_pod_settings(
    pod: Mapping[str, Any], settings: Pods, *, tolerates: bool = True
) -> dict[str, Any]:
    """Return a pod's spec with pull secrets, priority, tolerations and CPU limits."""
    changed = dict(pod)
    if settings.image_pull_secrets:
        changed["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.priority_class:
        changed["priorityClassName"] = settings.priority_class
    if tolerates and settings.tolerations:
        changed["tolerations"] = [*pod.get("tolerations", ()), *map(dict, settings.tolerations)]
    for kind in ("initContainers", "containers"):
        if kind in pod:
            changed[kind] = [with_cpu_limit(container, settings) for container in pod[kind]]
    return changed


def with_cpu_limit(container: Mapping[str, Any], settings: Pods) -> dict[str, Any]:
    """Return a container with the CPU limit; no request of ours is higher."""
    if not settings.cpu_limit:
        return dict(container)
    resources = container.get("resources", {})
    limits = {"cpu": settings.cpu_limit, **resources.get("limits", {})}
    return {**container, "resources": {**resources, "limits": limits}}


def with_object_settings(document: Mapping[str, Any], settings: Pods) -> dict[str, Any]:
    """Return a workload with the labels of the settings; a Job with its queue and life time."""
    changed = _labelled(document, settings.labels)
    if "spec" not in document or "template" not in document["spec"]:
        return changed
    spec = dict(document["spec"])
    spec["template"] = _labelled(spec["template"], settings.labels)
    if document["kind"] == "Job":
        if settings.queue:
            changed = _labelled(changed, {_QUEUE: settings.queue})
        if settings.ttl is not None:
            spec = {"ttlSecondsAfterFinished": settings.ttl, **spec}
    return {**changed, "spec": spec}


def _labelled(document: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    if not labels:
        return dict(document)
    metadata = document["metadata"]
    return {
        **document,
        "metadata": {**metadata, "labels": {**labels, **metadata.get("labels", {})}},
    }
