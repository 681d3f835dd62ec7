"""A CronJob that labels Nodes from within the cluster, so that joining Nodes get their class.

In: a plan, the configuration and the image of fleetbuild. Out: YAML. It plans from the cluster each
time, with the rights of `emit rbac`, and keeps nothing.
"""

from __future__ import annotations

from typing import Any

from fleetbuild.emit.rbac import NAME, login_files
from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.kubernetes.manifests import security
from fleetbuild.kubernetes.manifests.kustomize import kustomization_file
from fleetbuild.kubernetes.manifests.names import object_head
from fleetbuild.kubernetes.manifests.options import Delivery
from fleetbuild.kubernetes.manifests.pod_parts import python_of
from fleetbuild.kubernetes.manifests.pod_settings import with_object_settings, with_pod_settings
from fleetbuild.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import Config, Plan

FILE = "labeller.yaml"
_HEADER = """\
Labels the Nodes of this cluster with class and isa each quarter of an hour, Nodes that joined since
included. Release labels stay as they are: only what installs a release may change them.
    kubectl create namespace {namespace}
    kubectl apply -k .
Its last run: kubectl logs -n {namespace} -l app.kubernetes.io/name={name} --tail=-1"""
_ALL = """\
The login of fleetbuild, and a CronJob that uses it: kubectl apply -k ."""
# Nodes that are not ready, or for which nothing can be built, do not keep labels from the others.
_SCRIPT = """\
HOME=$(mktemp -d)  # a folder of its own: anybody can write in the folder of a volume
export HOME
cd "$HOME" && cp /config/fleetbuild.yml . || exit 1
fleetbuild plan --from-cluster
case $? in 0|3|4) ;; *) exit 1 ;; esac
fleetbuild emit labels --apply
"""
_WHY_REPLACE = "A run that hangs is ended by the next one."
# What decides the classes of Nodes; indexes may hold passwords, and no class depends on them.
_BUILD = ("image", "libc", "policy")


def labeller_files(plan: Plan, config: Config, delivery: Delivery) -> dict[str, str]:
    """Return the CronJob with its configuration, the login's files and a kustomization."""
    if not delivery.image:
        raise UsageError(
            "The image of fleetbuild is not named.",
            "Make one with `make image` in a checkout, push it, and name it with --image.",
        )
    if not plan.groups:
        raise BlockedError("The plan has no group, so no Node has a class.", "Plan again.")
    labels = {"app.kubernetes.io/name": "fleetbuild-labeller"}
    where = {"name": "fleetbuild-labeller", "namespace": delivery.namespace}
    config_map = {
        **object_head("v1", "ConfigMap", **where),
        "data": {"fleetbuild.yml": dump(_config(plan, config))},
    }
    pod = with_pod_settings(_pod(delivery), delivery.pods)
    job = {"kind": "Job", "metadata": {"labels": labels}, "spec": {
        "backoffLimit": 1,
        "activeDeadlineSeconds": 840,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }}  # fmt: skip
    template = with_object_settings(job, delivery.pods)
    cron = {
        **object_head("batch/v1", "CronJob", **where),
        "spec": {
            "schedule": "*/15 * * * *",
            "concurrencyPolicy": Note("Replace", _WHY_REPLACE),
            "jobTemplate": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }
    header = _HEADER.format(namespace=delivery.namespace, name="fleetbuild-labeller")
    files = {
        **login_files(plan.label_domain, delivery.namespace),
        FILE: dump(config_map, header) + "---\n" + dump(cron),
    }
    return {**files, "kustomization.yaml": kustomization_file(sorted(files), _ALL)}


def _config(plan: Plan, config: Config) -> dict[str, Any]:
    """Return the settings that decide the classes: exact versions from the plan, no addresses."""
    packages = {
        f"{wheel.package}=={wheel.version}" for group in plan.groups for wheel in group.wheels
    }
    given = config.model_dump(mode="json", exclude_defaults=True)
    build = {key: value for key, value in given.get("build", {}).items() if key in _BUILD}
    # A plan over SSH has none. It decides the Python, and no class depends on that.
    pythons = sorted(group.target.python for group in plan.groups)
    build.setdefault("image", plan.build_image or f"python:{python_of(pythons[0])}-bookworm")
    chosen: dict[str, Any] = {
        key: given[key] for key in ("python", "cuda", "grouping") if key in given
    }
    return {
        "release": plan.release,
        "packages": sorted(packages),
        **chosen,
        "build": build,
        "kubernetes": {"label_domain": plan.label_domain},
    }


def _pod(delivery: Delivery) -> dict[str, Any]:
    container = {
        "name": "labeller",
        "image": delivery.image,
        "command": ["sh", "-c", _SCRIPT],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": security.CONTAINER,
        "volumeMounts": [
            {"name": "config", "mountPath": "/config", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the pod's own /tmp
        ],
    }
    return {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "securityContext": {**security.POD, "fsGroup": security.NOBODY},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": "fleetbuild-labeller"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
