"""Every way and kind at a real API server."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

import yaml

from fleetbuild.extensions.kubernetes.manifests.render import render
from tests.extensions.kubernetes.delivery import KINDS, WAYS, delivery
from tests.factories import real_api
from tests.factories.plans import six_nodes, wheels_of
from tests.factories.real_api import RealApi

pytestmark = real_api.needed

PLAN = six_nodes()
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
}


def namespace(api: RealApi, name: str, level: str) -> str:
    labels = {"pod-security.kubernetes.io/enforce": level}
    metadata = {"name": name, "labels": labels}
    api.ask("POST", "/api/v1/namespaces", {"metadata": metadata})
    return name


def create(api: RealApi, document: dict[str, Any], where: str) -> None:
    path = PATHS[document["kind"]].format(where)
    api.ask("POST", f"{path}?fieldValidation=Strict", document)


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]["template"]["spec"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": document["metadata"]["name"]},
        "spec": {**spec, "restartPolicy": "Never"},
    }


def documents(way: str, kind: str) -> dict[str, dict[str, Any]]:
    files = render(PLAN, delivery=delivery(way, kind), wheels=wheels_of(PLAN))
    return {group.name: yaml.safe_load(files[f"{kind}-{group.name}.yaml"]) for group in PLAN.groups}


def test_the_server_accepts_every_way_and_kind(running: RealApi) -> None:
    for way in WAYS:
        for kind in KINDS:
            where = namespace(running, f"{way}-{kind}", "privileged")
            for document in documents(way, kind).values():
                create(running, document, where)


def test_only_a_host_path_needs_a_privileged_namespace(running: RealApi) -> None:
    refused = set()
    for way in WAYS:
        where = namespace(running, f"{way}-restricted", "restricted")
        try:
            create(running, pod_of(documents(way, "job")["cpu-avx2-cp311"]), where)
        except HTTPError as error:
            refused.add((way, error.code))
            error.close()
    assert refused == {("hostpath", 403)}
