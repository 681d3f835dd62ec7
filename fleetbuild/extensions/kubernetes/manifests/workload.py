"""A smoke workload of a group's release: a Deployment, Job or DaemonSet that imports packages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from fleetbuild.extensions.kubernetes.manifests import security
from fleetbuild.extensions.kubernetes.manifests.names import dns_label
from fleetbuild.extensions.kubernetes.manifests.options import PodParts, WorkloadKind
from fleetbuild.extensions.kubernetes.manifests.pod_settings import (
    with_object_settings,
    with_pod_settings,
)
from fleetbuild.extensions.kubernetes.manifests.release_wait import BOTH_RUN, ENDS_FIRST, SURGE
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import Plan, PlannedGroup
from fleetbuild.this_machine import compiled_folders

CONTAINER = "main"  # a component finds it by this name
KINDS: dict[WorkloadKind, tuple[str, str]] = {
    "deployment": ("apps/v1", "Deployment"),
    "daemonset": ("apps/v1", "DaemonSet"),
    "job": ("batch/v1", "Job"),
}

_HEADER = """\
A smoke {kind} for the group {group}.
It imports {imports}, prints their versions and paths, and {ending}
Replace its image and command by your own, and keep these parts, which a pod needs:
  {keep}
`emit kustomize` writes a component that adds them to workloads of yours.

{about}"""
_ENDINGS: dict[WorkloadKind, str] = {
    "deployment": "stays until it is stopped; it is\n"
    "ready, and `kubectl rollout status` succeeds, once the imports have succeeded.",
    "daemonset": "stays until it is stopped, on each of\n"
    "the group's nodes; it is ready, and `kubectl rollout status` succeeds, once the imports have\n"
    "succeeded.",
    "job": "is complete, once the imports have succeeded.",
}

_IMPORTS = """\
import importlib, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    print(name, getattr(module, "__version__", "-"), getattr(module, "__file__", "-"), flush=True)
"""
_STAY = """\
print("ready", flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
"""
_BLOCK = """\
import signal
# The first process of a container does not see a signal that it neither handles nor blocks.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
"""


def smoke(plan: Plan, group: PlannedGroup, kind: WorkloadKind, parts: PodParts, image: str) -> str:
    """Return the manifest of a workload."""
    name = object_name(plan, group, job_suffix(kind, parts, image))
    document = workload(kind, name, _pod(kind, parts, image))
    document["spec"] |= update_strategy(kind, parts)
    return dump(with_object_settings(document, parts.pods), _header(group, kind, parts))


def update_strategy(kind: WorkloadKind, parts: PodParts) -> dict[str, Any]:
    """Return the part of a DaemonSet's spec that lets its new pod start beside the old one."""
    return {"updateStrategy": SURGE} if kind == "daemonset" and not parts.gpu else {}


def about(parts: PodParts) -> str:
    """Return how the packages get into the pod, and how a DaemonSet's pods are replaced."""
    return parts.about + updates(parts)


def updates(parts: PodParts) -> str:
    """Return how the pods of a DaemonSet that waits for its release are replaced."""
    if not parts.waits:
        return ""
    return ENDS_FIRST if parts.gpu else BOTH_RUN


def job_suffix(kind: WorkloadKind, parts: PodParts, image: str) -> str:
    """Return the end of a Job's name: a hash of its pod, since a Job's pod cannot be changed."""
    if kind != "job":
        return ""
    pod = dump(_pod(kind, parts, image))
    if parts.pods.labels:
        pod += dump(parts.pods.labels)
    return "-" + hashlib.sha256(pod.encode()).hexdigest()[:8]


def object_name(plan: Plan, group: PlannedGroup | None = None, ending: str = "") -> str:
    """Return the name of a workload, of one group or, in a Kustomize base, of all."""
    release = [] if plan.release == "default" else [dns_label(plan.release, 10)]
    of_group = [group_name(group, ending)] if group else []
    return "-".join(["fleetbuild", *of_group, *release]) + ending


def group_name(group: PlannedGroup, ending: str) -> str:
    """Return a group's name as part of a workload's name with this ending."""
    return dns_label(group.name, 40 - len(ending))


def workload(kind: WorkloadKind, name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of this kind around a pod."""
    version, title = KINDS[kind]
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "fleetbuild"}
    spec: dict[str, Any] = {"template": {"metadata": {"labels": labels}, "spec": pod}}
    if kind == "job":  # a Job makes its own selector
        spec = {"backoffLimit": 2, **spec}
    else:
        spec = {"selector": {"matchLabels": {"app.kubernetes.io/name": name}}, **spec}
    if kind == "deployment":
        spec = {"replicas": 1, **spec}
    return {
        "apiVersion": version,
        "kind": title,
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def _header(group: PlannedGroup, kind: WorkloadKind, parts: PodParts) -> str:
    keep = {
        "nodeSelector": True,
        "tolerations": parts.tolerations,
        "runtimeClassName": parts.runtime_class,
        "initContainers": parts.init_container,
        "image": parts.image,
        "env": True,
        "volumeMounts": parts.mount,
        "volumes": parts.volume,
    }
    return _HEADER.format(
        kind=KINDS[kind][1],
        group=group.name,
        imports=", ".join(parts.imports) or "no package",
        ending=_ENDINGS[kind],
        keep=", ".join(name for name, present in keep.items() if present),
        about=about(parts),
    )


def _pod(kind: WorkloadKind, parts: PodParts, image: str) -> dict[str, Any]:
    pod = bare_pod(kind, image, parts.imports)
    container = pod["containers"][0]
    container["env"] = [*environment(parts), *container["env"]]
    container["resources"]["limits"].update(parts.limits)
    if parts.mount:
        mount = Note(parts.mount, parts.why_mount)
        container["volumeMounts"] = [mount, *container["volumeMounts"]]
    if parts.volume:
        pod["volumes"] = [parts.volume, *pod["volumes"]]
    first: dict[str, Any] = {"nodeSelector": Note(dict(parts.selector), parts.why_selector)}
    if parts.tolerations:
        first["tolerations"] = list(parts.tolerations)
    if parts.runtime_class:
        first["runtimeClassName"] = parts.runtime_class
    if parts.init_container:
        pod = {"initContainers": [with_image(parts.init_container, image)], **pod}
    return with_pod_settings({**first, **pod}, parts.pods, tolerates=False)


def with_image(container: Mapping[str, Any], image: str) -> Mapping[str, Any]:
    """Return an init container, with this image unless it has its own."""
    name = {"name": container["name"], "image": container.get("image", image)}
    return {**name, **{key: value for key, value in container.items() if key not in name}}


def environment(parts: PodParts) -> list[Mapping[str, str]]:
    """Return what a container sets: PYTHONPATH, unless the group's own image does, and caches."""
    path = {} if parts.image else {"PYTHONPATH": parts.site_packages}
    variables = {**path, **compiled_folders(parts.compiled)}
    return [{"name": name, "value": value} for name, value in variables.items()]


def bare_pod(kind: WorkloadKind, image: str, modules: Sequence[str]) -> dict[str, Any]:
    """Return the smoke pod before a group adds its packages and nodes."""
    script = _IMPORTS if kind == "job" else _BLOCK + _IMPORTS + _STAY
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": image,
        "command": ["python3", "-c", script],
        "args": list(modules),
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        "readinessProbe": {
            "exec": Note(readiness(modules), "A pod whose packages are gone is not ready."),
            "periodSeconds": 20,
            "timeoutSeconds": 60,
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": security.CONTAINER,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 the pod's own /tmp
    }
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security.POD,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    if kind == "job":  # a Job is never ready, and its pod ends
        del container["readinessProbe"]
        pod["restartPolicy"] = "Never"
    return pod


def readiness(modules: Sequence[str]) -> dict[str, list[str]]:
    """Return a probe that imports the modules in a fresh Python; the running one cached them."""
    return {"command": ["python3", "-c", _IMPORTS, *modules]}
