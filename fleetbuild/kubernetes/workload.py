"""A Deployment that mounts a group's release from its node and runs it with the image's Python."""

from __future__ import annotations

from typing import Any

from fleetbuild.kubernetes.document import Note, dump
from fleetbuild.kubernetes.labels import selector_labels
from fleetbuild.kubernetes.names import dns_label
from fleetbuild.models import Plan, PlannedGroup, Target, release_root

# What Kubernetes calls the architectures that the kernel names.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NOBODY = 65534

_HEADER = """\
A smoke deployment for the group {group}.
It imports {imports}, prints what it found, and stays until it is stopped; it is
ready, and `kubectl rollout status` succeeds, once the imports did. Put your own image and command
in its place, and keep nodeSelector, env, volumeMounts and volumes: a pod needs those four.

The release lies on the node, at
  {path}
and holds
{packages}
The python of its virtual environment does not exist in the image. The image brings its own Python
{python}, of the same ABI ({abi}), and PYTHONPATH leads it to the packages.

{libc}

hostPath volumes need a namespace that allows them (Pod Security level "privileged")."""

_GLIBC = """\
The wheels are built for glibc {floor} and newer, the oldest among the group's nodes. Use no image
with an older one."""
_MUSL = """\
The wheels are built for musl {floor} and newer: use an image of the Alpine family. python:*-alpine
has no libstdc++ or libgomp; where a package wants them, use an image with those added."""

_SMOKE = """\
import importlib, pathlib, signal, sys
# The first process of a container does not see a signal that it neither handles nor blocks.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    print(name, getattr(module, "__version__", "-"), getattr(module, "__file__", "-"), flush=True)
pathlib.Path("/tmp/ready").touch()
print("ready", flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
"""


def release_path(plan: Plan, group: PlannedGroup) -> str:
    """Where the group's release lies on its nodes."""
    return f"{release_root(plan.install_path, plan.release)}/releases/{group.release_id}"


def site_packages(release: str, abi: str) -> str:
    """Where a virtual environment of this ABI keeps its packages."""
    return f"{release}/lib/python{_python(abi)}/site-packages"


def _python(abi: str) -> str:
    """cp311 is Python 3.11, and cp313t keeps its packages in python3.13t."""
    digits = abi.removeprefix("cp")
    return f"{digits[:1]}.{digits[1:]}"


def deployment(plan: Plan, group: PlannedGroup, image: str) -> str:
    """deployment-<group>.yaml."""
    name = "fleetbuild-" + dns_label(group.name, 40)
    if plan.release != "default":
        name += "-" + dns_label(plan.release, 10)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "fleetbuild"}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(plan, group, image)},
        },
    }
    return dump(document, _header(plan, group))


def _header(plan: Plan, group: PlannedGroup) -> str:
    target = group.target
    libc = _GLIBC if target.libc.family == "glibc" else _MUSL
    return _HEADER.format(
        group=group.name,
        imports=", ".join(_imports(group)),
        packages="\n".join(f"  {wheel.package} {wheel.wheel_version}" for wheel in group.wheels),
        path=release_path(plan, group),
        python=_python(target.python),
        abi=target.python,
        libc=libc.format(floor=target.libc.floor),
    )


def _pod(plan: Plan, group: PlannedGroup, image: str) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "nodeSelector": Note(
            {
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": ARCHITECTURES.get(group.target.arch, group.target.arch),
                **selector_labels(plan, group),
            },
            "Only nodes on which this very release was verified.",
        ),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(plan, group, image)],
        "volumes": [
            {
                "name": "release",
                "hostPath": Note(
                    {"path": release_path(plan, group), "type": "Directory"},
                    "Directory: a pod on a node without the release fails instead of making it.",
                ),
            },
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    if group.target.sms:
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return pod


def _container(plan: Plan, group: PlannedGroup, image: str) -> dict[str, Any]:
    release = release_path(plan, group)
    return {
        "name": "smoke",
        "image": image,
        "command": ["python3", "-c", _SMOKE],
        "args": _imports(group),
        "env": [
            {"name": "PYTHONPATH", "value": site_packages(release, group.target.python)},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "readinessProbe": {
            "exec": {"command": ["test", "-f", "/tmp/ready"]},  # noqa: S108 the pod's own /tmp
            "periodSeconds": 5,
        },
        "resources": _resources(group.target),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            Note(
                {"name": "release", "mountPath": release, "readOnly": True},
                "The same path as on the node, so that absolute paths in the release hold.",
            ),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the pod's own /tmp
        ],
    }


def _resources(target: Target) -> dict[str, Any]:
    limits: dict[str, Any] = {"memory": "2Gi"}
    if target.sms:
        limits["nvidia.com/gpu"] = 1
    return {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": limits}


def _imports(group: PlannedGroup) -> list[str]:
    return [
        name
        for wheel in group.wheels
        for name in wheel.import_names or (wheel.package.replace("-", "_"),)
    ]
