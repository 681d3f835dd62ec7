"""What the login of `emit rbac` may do at a real API server, and what a kubelet may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from fleetbuild import Cluster, Fleet
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.api.pods import may_list_pods
from fleetbuild.extensions.kubernetes.cluster_labels import label as label_cluster
from fleetbuild.extensions.kubernetes.emit.rbac import login_files
from fleetbuild.extensions.kubernetes.labels.apply import (
    Labelling,
    Outcome,
    WantedLabels,
    label_nodes,
)
from fleetbuild.plan.document.serialize import with_digest
from tests.factories import real_api
from tests.factories.plans import reused_plan
from tests.factories.real_api import ADMIN, KUBELET, RealApi, eventually

pytestmark = real_api.needed

DOMAIN, RESERVED = "fleetbuild.dev", "fleetbuild.node-restriction.kubernetes.io"
NODE = "/api/v1/nodes/a"
KEPT = {"team": "vision", "topology.kubernetes.io/zone": "z1"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    with real_api.serving(tmp_path_factory.mktemp("api")) as api:
        for space, domain in (("fleetbuild", DOMAIN), ("reserved", RESERVED)):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
            for text in login_files(domain, space).values():
                for document in yaml.safe_load_all(text):
                    shared = document["kind"] in ("ClusterRole", "Role")
                    if not shared or space == "fleetbuild":
                        api.create(document)
        yield api


@pytest.fixture
def api(running: RealApi) -> RealApi:
    running.clear()
    running.add("a", labels=KEPT)
    for space in ("fleetbuild", "reserved"):  # a policy is in force a moment after it is made
        token = token_of(running, space)
        eventually(lambda token=token: refused(running, {"labels": {"probe": "1"}}, token))
    return running


def token_of(api: RealApi, space: str = "fleetbuild") -> str:
    path = f"/api/v1/namespaces/{space}/serviceaccounts/fleetbuild/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = api.ask("POST", path, request)["status"]["token"]
    return token


def refused(api: RealApi, metadata: dict[str, Any], token: str, **rest: Any) -> str:
    """Return the reason why a change of the Node is refused, "" if it is not."""
    try:
        api.ask("PATCH", f"{NODE}?dryRun=All", {"metadata": metadata, **rest}, token)
    except HTTPError as error:
        with error:
            return str(yaml.safe_load(error.read())["message"])
    return ""


@contextmanager
def login(api: RealApi, folder: Path, space: str = "fleetbuild") -> Iterator[Client]:
    with Client(find_access(api.kubeconfig(folder, token=token_of(api, space)))) as client:
        yield client


def label(client: Client, wanted: WantedLabels, labelling: Labelling) -> Outcome:
    return label_nodes(client, list_nodes(client), {"a": wanted}, labelling)["a"]


@pytest.mark.parametrize(("space", "domain"), [("fleetbuild", DOMAIN), ("reserved", RESERVED)])
def test_it_sets_changes_takes_over_and_removes_its_own_labels(
    api: RealApi, tmp_path: Path, space: str, domain: str
) -> None:
    hardware = {f"{domain}/class": "cpu-avx2", f"{domain}/isa": "avx2"}
    release = {f"{domain}/group": "cpu-avx2-cp311", f"{domain}/release": "0123456789abcdef"}
    forced = Labelling(domain, force=True)
    with login(api, tmp_path, space) as client:
        assert label(client, WantedLabels(release, hardware), Labelling(domain)).state == "labelled"
        assert api.labels("a") == {**KEPT, **hardware, **release}
        api.set("a", {f"{domain}/release": "mine"}, by="kubectl-label")
        taken = label(client, WantedLabels(release, hardware), forced)
        assert (taken.state, taken.reason) == ("labelled", None)
        assert label(client, WantedLabels({}, {}), forced).state == "labelled"
        assert api.labels("a") == KEPT
        assert not may_list_pods(client)


def test_it_records_what_changed_on_nodes_and_may_read_no_event(
    api: RealApi, tmp_path: Path
) -> None:
    api.add("b")
    cluster = Cluster(api.kubeconfig(tmp_path, token=token_of(api)))
    fleet = Fleet(state_dir=tmp_path / "state", cluster=cluster)
    plan = with_digest(reused_plan("a", "b"))
    events = "/apis/events.k8s.io/v1/namespaces/default/events"

    def label() -> list[tuple[str, str]]:
        api.ask("DELETE", events)
        labelled = label_cluster(fleet, plan=plan, events=True)
        assert not labelled.remarks
        found = api.ask("GET", events)["items"]
        return sorted((each["reason"], each["regarding"]["name"]) for each in found)

    assert label() == [("Labelled", "a"), ("Labelled", "b")]
    assert label() == []
    api.set("a", {f"{DOMAIN}/class": None}, by="kubectl-label")
    api.delete("b")
    assert label() == [("LabelsRestored", "a"), ("NodeLeft", "b")]
    assert label() == []
    api.set("a", {f"{DOMAIN}/class": "mine"}, by="kubectl-label")
    assert label() == [("LabelsRefused", "a")]
    with pytest.raises(HTTPError, match="403"):
        api.ask("GET", events, token=token_of(api))


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a label of others": ({"labels": {"team": "speech"}}, {}),
    "a new label": ({"labels": {"new": "1"}}, {}),
    "a label that only starts alike": ({"labels": {"fleetbuild.dev.example.org/class": "x"}}, {}),
    "no label of others": ({"labels": {"team": None}}, {}),
    "no labels at all": ({"labels": None}, {}),
    "its own and another": ({"labels": {f"{DOMAIN}/class": "x", "team": "speech"}}, {}),
    "a label of another domain": ({"labels": {f"{RESERVED}/class": "x"}}, {}),
    "an annotation": ({"annotations": {f"{DOMAIN}.example/note": "x"}}, {}),
    "a finalizer": ({"finalizers": ["example.org/stay"]}, {}),
    "an owner": (
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}, {}
    ),
    "a taint": ({}, {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}),
    "unschedulable": ({}, {"spec": {"unschedulable": True}}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_it_may_change_nothing_else_of_a_node(
    api: RealApi, change: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    metadata, rest = change
    said = refused(api, metadata, token_of(api), **rest)
    assert "may change only labels and annotations of fleetbuild.dev/" in said
    assert not refused(api, metadata, ADMIN, **rest), "others are limited too"
    assert not refused(api, {"labels": {f"{DOMAIN}/class": "x"}}, token_of(api))


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", NODE),
        ("DELETE", NODE),
        ("PATCH", f"{NODE}/status"),
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/fleetbuild/configmaps"),
        ("POST", "/api/v1/namespaces/fleetbuild/serviceaccounts/fleetbuild/token"),
    ],
)
def test_it_has_no_other_rights(api: RealApi, verb: str, path: str) -> None:
    with pytest.raises(HTTPError) as problem:
        api.ask(verb, path, {} if verb != "GET" else None, token_of(api))
    problem.value.close()
    assert problem.value.code == 403


def test_a_change_that_the_policy_refuses_is_explained(api: RealApi, tmp_path: Path) -> None:
    """As after a change of kubernetes.label_domain."""
    with login(api, tmp_path) as client:
        wanted = WantedLabels({}, {"other.example.org/class": "cpu-avx2"})
        outcome = label(client, wanted, Labelling("other.example.org"))
    assert outcome.state == "forbidden"
    assert "only labels and annotations of fleetbuild.dev/" in str(outcome.reason)
    assert "fleetbuild emit rbac" in str(outcome.fix)


def test_a_kubelet_may_change_our_labels_on_its_own_node_unless_the_domain_is_reserved(
    api: RealApi,
) -> None:
    """docs/security.md says so."""
    assert not refused(api, {"labels": {f"{DOMAIN}/class": "sm90-avx512"}}, KUBELET)
    said = refused(api, {"labels": {f"{RESERVED}/class": "sm90-avx512"}}, KUBELET)
    assert "is not allowed to modify labels" in said
    api.add("b")
    change = {"metadata": {"labels": {f"{DOMAIN}/class": "x"}}}
    with pytest.raises(HTTPError) as problem:
        api.ask("PATCH", "/api/v1/nodes/b", change, KUBELET)
    problem.value.close()
    assert problem.value.code == 403
