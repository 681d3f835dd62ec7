"""Builds in the cluster: a Job for each wheel of a plan, on the nodes that may build it.

In: a plan and its build orders. Out: file names and texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from fleetbuild.extensions.kubernetes.config import Pods
from fleetbuild.extensions.kubernetes.labels.features import GPU_TOLERATION
from fleetbuild.extensions.kubernetes.manifests import security
from fleetbuild.extensions.kubernetes.manifests.names import dns_label
from fleetbuild.extensions.kubernetes.manifests.pod_settings import (
    with_object_settings,
    with_pod_settings,
)
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import Plan, PlannedWheel
from fleetbuild.models._base import Frozen

_PROGRAMS, _WHEELS = "fleetbuild-builder", "fleetbuild-wheels"
# In the pod.
_BUILDER, _JOB, _WORK, _SHELF, _BASES = "/fleetbuild/builder", "/job", "/work", "/wheels", "/bases"
_CACHE = "/cache"

_KUSTOMIZATION = """\
The plan's builds: kubectl apply -k . -n NAMESPACE
The namespace must let its pods reach the package index that the plan was locked with."""
_CLAIM = """\
The Jobs write their wheels here, each into a folder named after its artifact key. A Job mounts its
own folder, read-only the folders of the wheels that it is built against, and its package's compiler
cache below ccache. Jobs run on several nodes, so the storage class must support ReadWriteMany;
otherwise all run on one node."""
_PROGRAM_HEADER = """\
The programs that build a wheel on a node over SSH, byte for byte."""
_JOB_HEADER = """\
Builds {package} {version}
for {groups}.
It downloads every input by the plan's hash. Its log contains the build's log."""


_SHELF_HEADER = """\
A pod that runs for an hour, to copy the wheels once the Jobs are done:
    kubectl apply -f shelf.yaml -n NAMESPACE
    kubectl wait --for=condition=Ready pod/fleetbuild-shelf -n NAMESPACE
    kubectl cp NAMESPACE/fleetbuild-shelf:/wheels wheels
    kubectl delete -f shelf.yaml -n NAMESPACE
    fleetbuild store add wheels"""

_WAIT = """\
#!/bin/sh
# Waits until each Job of this folder has ended; exits with 1 if one failed, and names it:
#     sh wait.sh -n NAMESPACE
# (A wait for the condition Complete alone goes on after a Job has failed.)
jobs="JOBS"
while :; do
    states=$(kubectl get jobs $jobs "$@" -o 'jsonpath={range .items[*]}\
{.metadata.name} {.status.conditions[*].type}{"\\n"}{end}') || exit 1
    running= failed=
    for job in $jobs; do
        case "$(printf '%s\\n' "$states" | grep "^$job ")" in
            *Failed*) failed="$failed $job" ;;
            *Complete*) ;;
            *) running="$running $job" ;;
        esac
    done
    [ -n "$running" ] || break
    sleep 10
done
for job in $failed; do
    echo "$job failed. Its log: kubectl logs job/$job $*"
done
[ -z "$failed" ]
"""
_GPU_NODES = "Nodes with GPUs build too; a build asks for no GPU."
_REQUESTS = """\
Enough for one compiler, so that the pod fits on each of these nodes beside other pods and beside
builds that wait for this one. It uses the CPU time that is left, and runs as many compilers as
job.json says for the node; the memory limit covers them."""

_WHEELS_VOLUME = {"name": "wheels", "persistentVolumeClaim": {"claimName": _WHEELS}}
# A compiler cache has many files, whose owner the kubelet else sets again for each pod.
_OWNER = {
    **security.POD, "fsGroup": security.NOBODY, "fsGroupChangePolicy": "OnRootMismatch",
}  # fmt: skip


class BuildOrder(Frozen):
    """A wheel to build in the cluster, with all inputs of its build."""

    wheel: PlannedWheel
    key: str
    groups: tuple[str, ...]
    downloads: tuple[dict[str, str], ...]  # file, url, sha256
    params: dict[str, Any]  # the role build_wheel's, without its folders


def build_jobs(
    plan: Plan,
    orders: Sequence[BuildOrder],
    programs: Mapping[str, str],
    settings: Pods = Pods(),  # noqa: B008 it is frozen
) -> dict[str, str]:
    """Return file name to text. `programs` is the collection's package that builds a wheel."""
    names = [_name(plan, order, settings) for order in orders]
    jobs = {
        f"{name}.yaml": _job(plan, order, settings)
        for name, order in zip(names, orders, strict=True)
    }
    made = {
        "wheels.yaml": dump(_claim(), _CLAIM),
        "builder.yaml": dump(_programs(programs), _PROGRAM_HEADER),
        **dict(sorted(jobs.items())),
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(made),
    }
    return {
        **made,
        "kustomization.yaml": dump(kustomization, _KUSTOMIZATION),
        "shelf.yaml": dump(_shelf(plan, orders, settings), _SHELF_HEADER),
        "wait.sh": _WAIT.replace("JOBS", " ".join(sorted(names))),
    }


def _shelf(plan: Plan, orders: Sequence[BuildOrder], settings: Pods) -> dict[str, Any]:
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": _OWNER,
        "containers": [
            {
                "name": "shelf",
                "image": plan.build_image,
                "command": ["sleep", "3600"],
                "resources": {"limits": {"memory": "256Mi"}},
                "securityContext": security.CONTAINER,
                "volumeMounts": [_folder(f"{_SHELF}/{order.key}", order.key) for order in orders],
            }
        ],
        "volumes": [_WHEELS_VOLUME],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "fleetbuild-shelf"},
        "spec": with_pod_settings(spec, settings),
    }
    return with_object_settings(pod, settings)


def _name(plan: Plan, order: BuildOrder, settings: Pods) -> str:
    """Return the Job's name.

    It ends in a hash of the pod, because a Job's pod cannot be changed.
    """
    text = dump(_pod(plan, order, "", settings))
    if settings.labels:
        text += dump(settings.labels)
    pod = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"fleetbuild-build-{dns_label(order.wheel.package, 26)}-{order.key[:12]}-{pod}"


def _claim() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _WHEELS},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "20Gi"}},
        },
    }


def _programs(programs: Mapping[str, str]) -> dict[str, Any]:
    runner = (
        files("fleetbuild.extensions.kubernetes").joinpath("data/build_job.py").read_text("utf-8")
    )
    return _config_map(_PROGRAMS, {"run.py": runner, **dict(sorted(programs.items()))})


def _config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": dict(data),
    }


def _job(plan: Plan, order: BuildOrder, settings: Pods) -> str:
    name = _name(plan, order, settings)
    waiting = _waiting(plan, order.wheel)
    about = {
        "key": order.key,
        "bases": [base.artifact_key for base in bases_in_claim(plan, order.wheel)],
        "patience": waiting,
        "downloads": list(order.downloads),
        "jobs": _jobs(plan, order.wheel),
        "params": order.params,
    }
    text = json.dumps(about, indent=1, sort_keys=True) + "\n"
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "fleetbuild"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 1,
            "activeDeadlineSeconds": Note(
                waiting + order.wheel.timeout_seconds,
                "What it is built against has its time before it.",
            ),
            "template": {"metadata": {"labels": labels}, "spec": _pod(plan, order, name, settings)},
        },
    }
    header = _JOB_HEADER.format(
        package=order.wheel.package,
        version=order.wheel.wheel_version,
        groups=", ".join(order.groups),
    )
    return (
        dump(_config_map(name, {"job.json": text}), header)
        + "---\n"
        + dump(with_object_settings(job, settings))
    )


def _waiting(plan: Plan, wheel: PlannedWheel) -> int:
    """Return the seconds that the builds of its bases may take, one after the other."""
    bases = [base for base in bases_in_claim(plan, wheel) if base.action == "build"]
    return max((base.timeout_seconds + _waiting(plan, base) for base in bases), default=0)


def bases_in_claim(plan: Plan, wheel: PlannedWheel) -> list[PlannedWheel]:
    """Return the wheels that it is built against and finds in the claim, where Jobs leave wheels.

    A published wheel is downloaded instead.
    """
    bases = (plan.wheels_by_key[key] for key in wheel.built_against)
    return [base for base in bases if not base.published]


def _pod(plan: Plan, order: BuildOrder, name: str, settings: Pods) -> dict[str, Any]:
    wheel = order.wheel
    nodes = list(_jobs(plan, wheel))
    tolerations = [GPU_TOLERATION, *settings.tolerations]
    pod = {
        "restartPolicy": "Never",
        "affinity": Note(_one_of(nodes), "The plan's builder, or one that may stand in for it."),
        "tolerations": Note(tolerations, _GPU_NODES),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _OWNER,
        "containers": [_container(plan, order)],
        "volumes": list(_volumes(order, name)),
    }
    return with_pod_settings(pod, settings, tolerates=False)


def _jobs(plan: Plan, wheel: PlannedWheel) -> dict[str, int]:
    """Return {Kubernetes node: number of compilers that fit} of the possible builders, in order."""
    return {
        plan.nodes[name].kubernetes_node or name: wheel.build_jobs.get(name, wheel.jobs)
        for name in builders(plan, wheel)
    }


def builders(plan: Plan, wheel: PlannedWheel) -> tuple[str, ...]:
    """Return the plan's nodes on which a pod may build this wheel, in order."""
    planned = (*filter(None, [wheel.built_on]), *wheel.fallbacks)
    return tuple(name for name in planned if not plan.nodes[name].taints)


def _one_of(nodes: Sequence[str]) -> dict[str, Any]:
    """Return an affinity for any of these nodes.

    A match field takes one value, so each has a term.
    """
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    first = {"weight": 100, "preference": terms[0]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": [first],
        }
    }


def _container(plan: Plan, order: BuildOrder) -> dict[str, Any]:
    wheel = order.wheel
    bases = [
        _folder(f"{_BASES}/{base.artifact_key}", base.artifact_key)
        for base in bases_in_claim(plan, wheel)
    ]
    program = [f"{_BUILDER}/run.py", f"{_JOB}/job.json", _WORK, _SHELF, _BASES, _CACHE]
    cache = []
    if plan.cache != "none":
        folder = f"ccache/{dns_label(wheel.package)}"
        cache = [{"name": "wheels", "mountPath": _CACHE, "subPath": folder}]
    python = next(iter(wheel.build_pythons.values()), "python3")
    one = wheel.requires.memory_gb
    return {
        "name": "build",
        "image": plan.build_image,
        "command": [python, "-I", "-u", *program],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {
            "requests": Note({"cpu": "500m", "memory": _memory(one)}, _REQUESTS),
            "limits": {"memory": _memory(one * max(_jobs(plan, wheel).values()))},
        },
        "securityContext": security.CONTAINER,
        "volumeMounts": [
            {"name": "builder", "mountPath": _BUILDER, "readOnly": True},
            {"name": "job", "mountPath": _JOB, "readOnly": True},
            {"name": "work", "mountPath": _WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the pod's own /tmp
            {"name": "wheels", "mountPath": _SHELF, "subPath": order.key},
            *cache,
            *bases,
        ],
    }


def _folder(path: str, folder: str | None) -> dict[str, Any]:
    """Return how a folder of the claim is mounted to be read."""
    return {"name": "wheels", "mountPath": path, "subPath": folder, "readOnly": True}


def _memory(gb: float) -> str:
    return f"{max(1, round(gb * 1024))}Mi"


def _volumes(order: BuildOrder, name: str) -> Iterator[dict[str, Any]]:
    yield {"name": "builder", "configMap": {"name": _PROGRAMS}}
    yield {"name": "job", "configMap": {"name": name}}
    disk = max(1, round(order.wheel.requires.disk_gb))
    yield {"name": "work", "emptyDir": {"sizeLimit": f"{disk}Gi"}}
    yield {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}
    yield _WHEELS_VOLUME
