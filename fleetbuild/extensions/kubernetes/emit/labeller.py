"""A Deployment that labels Nodes from within the cluster, so that joining Nodes get their class.

In: a plan, the configuration and the image of fleetbuild. Out: YAML. Each quarter of an hour it
plans from the cluster and labels, with the rights of `emit rbac`; what changed becomes events and
metrics. A Deployment and no CronJob: Prometheus can scrape it, with neither a Pushgateway nor a
folder of the node, and it remembers which Nodes there were without a right to write that down.
"""

from __future__ import annotations

from typing import Any

from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.extensions.kubernetes.api.kubeconfig import SERVICE_ACCOUNT
from fleetbuild.extensions.kubernetes.emit.rbac import NAME, login_files
from fleetbuild.extensions.kubernetes.manifests import security
from fleetbuild.extensions.kubernetes.manifests.kustomize import kustomization_file
from fleetbuild.extensions.kubernetes.manifests.names import object_head
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.pod_parts import python_of
from fleetbuild.extensions.kubernetes.manifests.pod_settings import (
    with_object_settings,
    with_pod_settings,
)
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import dump
from fleetbuild.models import Config, Plan

FILE = "labeller.yaml"
_HEADER = """\
Labels the Nodes of this cluster with class and isa each quarter of an hour, Nodes that joined since
included. Release labels stay as they are: only what installs a release may change them. Nodes that
joined or left, labels that somebody changed and other classes are events (kubectl describe node
NAME) and metrics (port {port}, /metrics).
    kubectl create namespace {namespace}
    kubectl apply -k .
What it did: kubectl logs -n {namespace} deployment/{name} -c labeller"""
_ALL = """\
The login of fleetbuild, and a Deployment that uses it: kubectl apply -k ."""
_NAME = "fleetbuild-labeller"
_PORT = 9180
# A folder of its own, as anybody can write in the folder of a volume. A run that hangs is ended.
# Nodes that are not ready, or for which nothing can be built, do not keep labels from the others.
_SCRIPT = """\
trap 'exit 0' TERM
export HOME=/tmp/fleetbuild
mkdir -p -m 700 "$HOME" && cd "$HOME" || exit 1
while :; do
  cp /config/fleetbuild.yml .
  timeout -k 60 840 fleetbuild plan --from-cluster
  case $? in
    0|3|4) timeout -k 60 840 fleetbuild emit labels --apply --events --metrics /metrics/metrics ;;
  esac
  sleep 900 & wait $!
done
"""
# Prometheus 3 refuses an answer without this type; the pod's address may be IPv6.
_SERVER = f"""\
import os, socket
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
address = os.environ["POD_IP"]
ThreadingHTTPServer.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
SimpleHTTPRequestHandler.extensions_map = {{"": "text/plain; version=0.0.4"}}
SimpleHTTPRequestHandler.log_message = lambda *_: None
SimpleHTTPRequestHandler.timeout = 10
files = partial(SimpleHTTPRequestHandler, directory="/metrics")
ThreadingHTTPServer((address, {_PORT}), files).serve_forever()
"""
# What decides the classes of Nodes; indexes may hold passwords, and no class depends on them.
_BUILD = ("image", "libc", "policy")


def labeller_files(plan: Plan, config: Config, delivery: Delivery) -> dict[str, str]:
    """Return the Deployment with its configuration, the login's files and a kustomization."""
    if not delivery.image:
        raise UsageError(
            "The image of fleetbuild is not named.",
            "Make one with `make image` in a checkout, push it, and name it with --image.",
        )
    if not plan.groups:
        raise BlockedError("The plan has no group, so no Node has a class.", "Plan again.")
    labels = {"app.kubernetes.io/name": _NAME}
    where = {"name": _NAME, "namespace": delivery.namespace}
    config_map = {
        **object_head("v1", "ConfigMap", **where),
        "data": {"fleetbuild.yml": dump(_config(plan, config))},
    }
    scraped = {"scrape": "true", "port": str(_PORT), "path": "/metrics"}
    notes = {f"prometheus.io/{key}": value for key, value in scraped.items()}
    pod = with_pod_settings(_pod(delivery), delivery.pods)
    deployment = {
        **object_head("apps/v1", "Deployment", **where),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": pod},
        },
    }
    deployment = with_object_settings(deployment, delivery.pods)
    header = _HEADER.format(namespace=delivery.namespace, name=_NAME, port=_PORT)
    files = {
        **login_files(plan.label_domain, delivery.namespace),
        FILE: dump(config_map, header) + "---\n" + dump(deployment),
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
    labeller = {
        **_container(
            "labeller", delivery, ["sh", "-c", _SCRIPT], _resources("100m", "256Mi", "1Gi")
        ),
        "volumeMounts": [
            {"name": "config", "mountPath": "/config", "readOnly": True},
            {"name": "metrics", "mountPath": "/metrics"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the pod's own /tmp
        ],
    }
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    server = {
        **_container(
            "metrics", delivery, ["python3", "-c", _SERVER], _resources("10m", "32Mi", "64Mi")
        ),
        "env": [{"name": "POD_IP", "valueFrom": address}],
        "ports": [{"name": "metrics", "containerPort": _PORT}],
        "volumeMounts": [
            {"name": "metrics", "mountPath": "/metrics", "readOnly": True},
            # In place of the token, which can label all Nodes: anybody may ask this container.
            {"name": "no-token", "mountPath": str(SERVICE_ACCOUNT), "readOnly": True},
        ],
    }
    return {
        "serviceAccountName": NAME,
        "enableServiceLinks": False,
        "securityContext": {**security.POD, "fsGroup": security.NOBODY},
        "containers": [labeller, server],
        "volumes": [
            {"name": "config", "configMap": {"name": _NAME}},
            {"name": "metrics", "emptyDir": {"sizeLimit": "16Mi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "no-token", "emptyDir": {}},
        ],
    }


def _container(
    name: str, delivery: Delivery, command: list[str], resources: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "image": delivery.image,
        "command": command,
        "resources": resources,
        "securityContext": security.CONTAINER,
    }


def _resources(cpu: str, memory: str, most_memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": most_memory}}
