"""Every way and kind at a real API server, and where a real scheduler puts the pods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models.serving import as_planned
from tests.extensions.kubernetes.delivery import KINDS, WAYS, cluster, delivery
from tests.factories import real_api
from tests.factories.plans import six_nodes, wheels_of
from tests.factories.real_api import RealApi

pytestmark = pytest.mark.skipif(
    not real_api.ASSETS or not real_api.SCHEDULER.exists(),
    reason="KUBEBUILDER_ASSETS names no folder with a kube-apiserver and a kube-scheduler",
)

PLAN = six_nodes()
EVERYONE = {node for group in PLAN.groups for node in group.nodes}
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    folder = tmp_path_factory.mktemp("api")
    with real_api.serving(folder) as running:
        yield running


@pytest.fixture
def scheduler(api: RealApi, tmp_path: Path) -> Iterator[None]:
    with real_api.scheduling(api.kubeconfig(tmp_path)):
        yield


def namespace(api: RealApi, name: str, level: str) -> str:
    labels = {"pod-security.kubernetes.io/enforce": level}
    metadata = {"name": name, "labels": labels}
    api.ask("POST", "/api/v1/namespaces", {"metadata": metadata})
    return name


def create(api: RealApi, document: dict[str, Any], where: str) -> None:
    path = PATHS[document["kind"]].format(where)
    api.ask("POST", f"{path}?fieldValidation=Strict", document)


def apply(api: RealApi, document: dict[str, Any], where: str) -> None:
    """Made, or changed to this where it is there: a pod of a Job that differs is refused."""
    try:
        create(api, document, where)
    except HTTPError as error:
        error.close()
        if error.code != 409:
            raise
        name = document["metadata"]["name"]
        api.ask("PATCH", f"{PATHS[document['kind']].format(where)}/{name}", document)


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


def test_the_server_accepts_every_way_and_kind(api: RealApi) -> None:
    for way in WAYS:
        for kind in KINDS:
            where = namespace(api, f"{way}-{kind}", "privileged")
            for document in documents(way, kind).values():
                create(api, document, where)


def test_jobs_of_two_releases_can_exist_side_by_side(api: RealApi) -> None:
    where = namespace(api, "two-releases", "privileged")
    groups = [group.model_copy(update={"release_id": "fedcba9876543210"}) for group in PLAN.groups]
    later = PLAN.model_copy(update={"groups": tuple(groups)})
    for plan in (PLAN, PLAN, later):
        for text in render(plan, delivery=delivery("hostpath", "job")).values():
            if "\nkind: Job\n" not in text:
                continue
            apply(api, yaml.safe_load(text), where)
    assert len(api.ask("GET", PATHS["Job"].format(where))["items"]) == 2 * len(PLAN.groups)


def test_only_a_host_path_needs_a_privileged_namespace(api: RealApi) -> None:
    refused = set()
    for way in WAYS:
        where = namespace(api, f"{way}-restricted", "restricted")
        try:
            create(api, pod_of(documents(way, "job")["cpu-avx2-cp311"]), where)
        except HTTPError as error:
            refused.add((way, error.code))
            error.close()
    assert refused == {("hostpath", 403)}


@pytest.mark.usefixtures("scheduler")
def test_the_scheduler_puts_each_pod_where_its_wheels_run(api: RealApi) -> None:
    for name, labels in cluster(PLAN, as_planned(PLAN, EVERYONE)).items():
        join(api, name, labels)
    wanted = {}
    for way in WAYS:
        where = namespace(api, f"{way}-scheduled", "privileged")
        for group in PLAN.groups:
            pod = pod_of(documents(way, "deployment")[group.name])
            create(api, pod, where)
            wanted[where, pod["metadata"]["name"]] = set(group.nodes)
    got = placed(api, len(wanted))
    assert got.keys() == wanted.keys()
    assert {pod: got[pod] in nodes for pod, nodes in wanted.items()} == dict.fromkeys(got, True)


def join(api: RealApi, name: str, labels: dict[str, str]) -> None:
    """A node comes and is ready; one with GPUs is tainted, as is usual."""
    api.add(name, labels=labels)
    room = {"cpu": "64", "memory": "640Gi", "pods": "110"}
    gpu = name.startswith("gpu")
    if gpu:
        room["nvidia.com/gpu"] = "64"
    ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "a test's"}]
    status = {"status": {"capacity": room, "allocatable": room, "conditions": ready}}
    api.ask("PATCH", f"/api/v1/nodes/{name}/status", status)
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}] if gpu else None
    api.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})


def placed(api: RealApi, number: int) -> dict[tuple[str, str], str]:
    """Namespace and name of each scheduled pod, and its node."""
    for _ in range(120):
        found = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod["spec"]["nodeName"]
            for pod in api.ask("GET", "/api/v1/pods")["items"]
            if pod["spec"].get("nodeName") and pod["metadata"]["namespace"].endswith("-scheduled")
        }
        if len(found) >= number:
            break
        time.sleep(0.25)
    return found
