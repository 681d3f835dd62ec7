"""The same as at the fake, at a real API server, if one is at hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from fleetbuild.errors import ClusterError, ForbiddenError
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.jobs.builder_image import builder_image
from fleetbuild.extensions.kubernetes.labels.apply import (
    Labelling,
    Outcome,
    WantedLabels,
    label_nodes,
)
from fleetbuild.extensions.kubernetes.labels.features import rung_flags
from fleetbuild.extensions.kubernetes.read_fleet import read_fleet
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models.config import Build
from tests.factories import real_api
from tests.factories.data import NFD_CRDS
from tests.factories.real_api import NOBODY, RealApi

pytestmark = real_api.needed

DOMAIN = "fleetbuild.dev"
HARDWARE = {f"{DOMAIN}/class": "cpu-avx2", f"{DOMAIN}/isa": "avx2"}
RELEASE = {f"{DOMAIN}/group": "cpu-avx2-cp311", f"{DOMAIN}/release": "0123456789abcdef"}
ALL, HARDWARE_ALONE = WantedLabels(RELEASE, HARDWARE), WantedLabels(hardware=HARDWARE)
OURS, FORCED = Labelling(DOMAIN), Labelling(DOMAIN, force=True)


@pytest.fixture
def api(running: RealApi) -> RealApi:
    running.clear()
    return running


@pytest.fixture
def client(api: RealApi, tmp_path: Path) -> Iterator[Client]:
    with connect(api, tmp_path) as made:
        yield made


def connect(api: RealApi, folder: Path, **user: Any) -> Client:
    return Client(find_access(api.kubeconfig(folder, **user)))


def label(client: Client, wanted: WantedLabels, labelling: Labelling = OURS) -> Outcome:
    return label_nodes(client, list_nodes(client), {"a": wanted}, labelling)["a"]


def test_labels_are_set_kept_and_removed(client: Client, api: RealApi) -> None:
    api.add("a", labels={"team": "vision"})
    assert label(client, ALL).state == "labelled"
    assert api.labels("a") == {"team": "vision", **HARDWARE, **RELEASE}
    assert label(client, ALL).state == "unchanged"
    assert label(client, HARDWARE_ALONE).state == "labelled"
    assert api.labels("a") == {"team": "vision", **HARDWARE}
    label(client, ALL)
    label(client, WantedLabels())
    assert api.labels("a") == {"team": "vision", **HARDWARE}


def test_two_domains_keep_their_labels(client: Client, api: RealApi) -> None:
    """Two users of one cluster: neither takes off what the other has set."""
    api.add("a")
    theirs = {"team.example.org/class": "cpu-avx", "team.example.org/release": "fedcba9876543210"}
    other = Labelling("team.example.org")
    label(client, ALL)
    hardware, release = theirs.items()
    assert label(client, WantedLabels(dict([release]), dict([hardware])), other).state == "labelled"
    assert api.labels("a") == {**HARDWARE, **RELEASE, **theirs}
    label(client, WantedLabels())
    assert api.labels("a") == {**HARDWARE, **theirs}
    label(client, WantedLabels({}, {}), other)
    assert api.labels("a") == HARDWARE


def test_a_second_folder_leaves_the_release_of_the_first_alone(
    client: Client, api: RealApi
) -> None:
    api.add("a")
    first, second = Labelling(DOMAIN, state="one"), Labelling(DOMAIN, state="two")
    label(client, ALL, first)
    # A plan from a cluster knows no release.
    assert label(client, WantedLabels(None, HARDWARE), second).state == "unchanged"
    outcome = label(client, WantedLabels({}, HARDWARE), second)
    assert (outcome.state, api.labels("a")) == ("conflict", {**HARDWARE, **RELEASE})
    assert "Another state directory" in f"{outcome.reason}"
    assert "'one'" in f"{outcome.reason}"


def test_conflicts_are_reported_and_taken_over_on_request(client: Client, api: RealApi) -> None:
    api.add("a")
    api.set("a", {f"{DOMAIN}/release": "mine"}, by="kubectl-label")
    outcome = label(client, ALL)
    assert outcome.state == "conflict"
    assert f'{DOMAIN}/release: conflict with "kubectl-label"' in str(outcome.reason)
    assert api.labels("a") == {f"{DOMAIN}/release": "mine"}
    assert label(client, ALL, FORCED).state == "labelled"
    assert api.labels("a") == {**HARDWARE, **RELEASE}


def test_a_label_with_another_owner_remains_after_removal(client: Client, api: RealApi) -> None:
    api.add("a")
    api.set("a", RELEASE, by="kubectl-label")
    assert label(client, ALL).state == "labelled"
    outcome = label(client, HARDWARE_ALONE)
    assert outcome.state == "kept"
    assert "set by kubectl-label" in str(outcome.reason)
    assert api.labels("a") == {**HARDWARE, **RELEASE}
    assert label(client, HARDWARE_ALONE, FORCED).state == "labelled"
    assert api.labels("a") == HARDWARE


def test_a_deleted_node_is_not_created_again(client: Client, api: RealApi) -> None:
    api.add("a")
    nodes = list_nodes(client)
    api.delete("a")
    assert label_nodes(client, nodes, {"a": ALL}, OURS)["a"].state == "gone"
    assert api.labels("a") is None


def test_a_new_node_of_the_same_name_is_not_labelled(client: Client, api: RealApi) -> None:
    api.add("a")
    nodes = list_nodes(client)
    api.delete("a")
    api.add("a")
    outcome = label_nodes(client, nodes, {"a": ALL}, OURS)["a"]
    assert outcome.state == "gone", outcome.reason
    assert api.labels("a") == {}


def test_a_label_that_no_node_can_have_is_refused(client: Client, api: RealApi) -> None:
    api.add("a")
    outcome = label(client, WantedLabels({f"{DOMAIN}/release": "not+a label"}, HARDWARE))
    assert outcome.state == "refused"
    assert "not+a label" in str(outcome.reason)


def test_missing_rights_name_the_rule(api: RealApi, client: Client, tmp_path: Path) -> None:
    api.add("a")
    nodes = list_nodes(client)
    with connect(api, tmp_path, token=NOBODY) as nobody:
        with pytest.raises(ForbiddenError, match="may not list nodes"):
            list_nodes(nobody)
        outcome = label_nodes(nobody, nodes, {"a": ALL}, OURS)["a"]
    assert outcome.state == "forbidden"
    assert 'User "nobody" cannot patch' in str(outcome.reason)


def test_an_expired_token_is_an_error(api: RealApi, client: Client, tmp_path: Path) -> None:
    api.add("a")
    nodes = list_nodes(client)
    with connect(api, tmp_path, token="expired") as stranger:
        assert label_nodes(stranger, nodes, {"a": ALL}, OURS)["a"].state == "unauthorized"
        with pytest.raises(ClusterError, match="rejected the credentials"):
            list_nodes(stranger)


def test_a_client_certificate_logs_in(api: RealApi, tmp_path: Path) -> None:
    api.add("a")
    certificate, key = real_api.client_certificate(api.folder)
    user = {"client-certificate": certificate, "client-key": key}
    with connect(api, tmp_path, **user) as someone:
        assert label(someone, ALL).state == "labelled"


def test_impersonation_gives_the_other_users_rights_and_name(api: RealApi, tmp_path: Path) -> None:
    api.add("a")
    another = {
        "token": real_api.ADMIN,
        "as": "Jürgen",
        "as-uid": "7",
        "as-user-extra": {"example.com/scope": ["x", "y"]},
    }
    with (
        connect(api, tmp_path, **another) as client,
        pytest.raises(ForbiddenError, match='User "Jürgen" cannot list'),
    ):
        list_nodes(client)
    with connect(api, tmp_path, **another, **{"as-groups": ["a", "system:masters"]}) as client:
        assert list(list_nodes(client)) == ["a"]


def test_an_exec_command_logs_in(api: RealApi, tmp_path: Path) -> None:
    api.add("a")
    said = '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "admin-token"}}'
    kind = "client.authentication.k8s.io/v1"
    command = {"apiVersion": kind, "command": "echo", "args": [said % kind]}
    with connect(api, tmp_path, exec=command) as someone:
        assert label(someone, ALL).state == "labelled"


def test_a_server_of_another_authority_is_not_trusted(api: RealApi, tmp_path: Path) -> None:
    kubeconfig = api.kubeconfig(tmp_path)
    text = kubeconfig.read_text().replace(str(api.certificate), str(api.folder / "ca.crt"))
    kubeconfig.write_text(text)
    with (
        Client(find_access(kubeconfig)) as client,
        pytest.raises(ClusterError, match="not trusted"),
    ):
        list_nodes(client)


def test_long_lists_are_read_in_pages(
    client: Client, api: RealApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetbuild.extensions.kubernetes.api.client.PAGE", 2)
    api.add("a", "b", "c", "d", "e")
    assert list(list_nodes(client)) == ["a", "b", "c", "d", "e"]


def test_node_feature_objects_show_the_cpu(client: Client, api: RealApi) -> None:
    status = {
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    level = {"feature.node.kubernetes.io/cpu-cpuid.X86_64_V3": "true"}
    api.add("a", "b", labels=level)
    for name in ("a", "b"):
        api.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    image = builder_image(Build(image="python:3.11-bookworm"), None)
    assert {each.isa for each in read_fleet(client, image)[1].values()} == {"avx2"}

    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in filter(None, real_api.yaml.safe_load_all(NFD_CRDS.read_text(encoding="utf-8"))):
        api.ask("POST", definitions, crd)
    flags = {flag: {} for flag in rung_flags(RUNGS["avx"])}
    feature = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": "a", "labels": {"nfd.node.kubernetes.io/node-name": "a"}},
        "spec": {"features": {"flags": {"cpu.cpuid": {"elements": flags}},
                              "attributes": {}, "instances": {}}},
    }  # fmt: skip
    features = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/default/nodefeatures"
    for _ in range(50):
        try:
            api.ask("POST", features, feature)
            break
        except HTTPError as error:  # the kind is not served yet
            error.close()
            time.sleep(0.2)
    found = read_fleet(client, image)[1]
    assert {name: each.isa for name, each in found.items()} == {"a": "avx", "b": "avx2"}
