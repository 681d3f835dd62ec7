"""What pods mount from their nodes, at the fake API server."""

from __future__ import annotations

from typing import Any

import pytest

from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.pods import CURRENT
from fleetbuild.extensions.kubernetes.labels.api_labeller import ApiLabeller
from fleetbuild.extensions.kubernetes.labels.labeller import LabelTargets
from fleetbuild.models.problem import Problem
from tests.factories.cluster_api import FakeApi, Say

ROOT = "/opt/fleetbuild"


def pod(name: str, node: str, path: str, phase: str = "Running") -> dict[str, Any]:
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "r", "hostPath": {"path": path}}]
    return {
        "metadata": {"namespace": "web", "name": name},
        "spec": {"nodeName": node, "volumes": volumes},
        "status": {"phase": phase},
    }


@pytest.fixture
def labels(client: Client, api: FakeApi) -> ApiLabeller:
    api.add("kube-a", "b")
    return ApiLabeller(LabelTargets("x.dev", nodes={"a": "kube-a", "b": "b", "c": "c"}), client)


def test_a_release_is_kept_for_pods_that_mount_it(labels: ApiLabeller, api: FakeApi) -> None:
    api.pods = [
        pod("runs", "kube-a", f"{ROOT}/releases/r1"),
        pod("waits", "kube-a", f"/{ROOT}/releases/./r2/lib/", "Pending"),
        pod("ended", "kube-a", f"{ROOT}/releases/r3", "Succeeded"),
        pod("elsewhere", "b", f"{ROOT}/staging/releases/r4"),
        pod("other", "b", "/var/log"),
    ]
    assert labels.in_use(["a", "b", "c"], f"{ROOT}/") == {
        "a": {"r1": "The pod web/runs mounts it.", "r2": "The pod web/waits mounts it."}
    }


def test_names_of_pods_and_paths_are_never_evaluated_as_templates(
    labels: ApiLabeller, api: FakeApi
) -> None:
    evil = "{{ lookup('pipe', 'id') }}"
    api.pods = [pod("p", "kube-a", f"{ROOT}/releases/{evil}"), pod(evil, "b", f"{ROOT}/releases/r")]
    assert labels.in_use(["a", "b"], ROOT) == {"b": {"r": "The pod web/? mounts it."}}


def test_many_pods_are_read_in_pages(labels: ApiLabeller, api: FakeApi) -> None:
    api.pods = [pod(f"p{n:04}", "b", f"{ROOT}/releases/r{n % 2}") for n in range(1200)]
    assert labels.in_use(["b"], ROOT) == {
        "b": {"r0": "The pod web/p0000 mounts it.", "r1": "The pod web/p0001 mounts it."}
    }


def test_missing_rights_to_list_pods_are_explained(labels: ApiLabeller, api: FakeApi) -> None:
    api.refuse(Say(403, "pods is forbidden", "Forbidden"), path="/pods")
    assert labels.prepare() == ""  # nothing is removed by a verification
    said = labels.prepare(installs=True)
    assert "may not list pods" in said
    assert "only while the node itself sees it mounted" in said
    assert '{apiGroups: [""], resources: [pods], verbs: [list]}' in said
    (problem,) = labels.in_use(["a"], ROOT).values()
    assert isinstance(problem, Problem)
    assert problem.reason == "u may not list pods: pods is forbidden"
    assert "verbs: [list]" in problem.fix


def test_a_server_that_cannot_be_asked_is_not_a_cluster_without_pods(
    labels: ApiLabeller, api: FakeApi
) -> None:
    labels.prepare()

    def fall_silent(asked: Any) -> None:
        if asked.query.get("fieldSelector") == "spec.nodeName=b":
            raise Say(503, "down")

    api.before = fall_silent
    api.pods = [pod("p", "kube-a", f"{ROOT}/releases/r1")]
    mounted = labels.in_use(["a", "b"], ROOT)
    assert mounted["a"] == {"r1": "The pod web/p mounts it."}
    assert isinstance(mounted["b"], Problem)


def test_a_host_with_several_possible_nodes_may_have_pods(client: Client, api: FakeApi) -> None:
    api.add("a.one", "a.two", "b")
    labels = ApiLabeller(LabelTargets("x.dev", nodes={"a": "a", "b": "b"}), client)
    mounted = labels.in_use(["a", "b"], ROOT)
    assert "has no Node a, but a.one, a.two" in str(mounted["a"])
    assert "b" not in mounted


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
def test_a_release_in_a_volume_of_all_releases_is_found_by_any_containers_mount(
    labels: ApiLabeller, api: FakeApi, kind: str
) -> None:
    one = pod("p", "b", f"{ROOT}/releases")
    one["spec"][kind] = [{"volumeMounts": [{"name": "r", "subPath": "r7"}, {"name": "x"}]}]
    api.pods = [one]
    assert labels.in_use(["b"], ROOT) == {"b": {"r7": "The pod web/p mounts it."}}


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/current", f"{ROOT}/current/lib"])
def test_a_pod_that_mounts_the_link_uses_the_release_that_serves(
    labels: ApiLabeller, api: FakeApi, path: str
) -> None:
    api.pods = [pod("p", "b", path), pod("q", "kube-a", "/opt")]
    assert labels.in_use(["a", "b"], ROOT) == {"b": {CURRENT: "The pod web/p mounts it."}}


def test_a_path_with_a_variable_may_be_the_release_that_serves(
    labels: ApiLabeller, api: FakeApi
) -> None:
    one = pod("p", "b", f"{ROOT}/releases")
    one["spec"]["containers"] = [{"volumeMounts": [{"name": "r", "subPathExpr": "$(RELEASE)"}]}]
    api.pods = [one]
    assert labels.in_use(["b"], ROOT) == {"b": {CURRENT: "The pod web/p mounts it."}}
