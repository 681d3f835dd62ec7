"""The labeller of an apply, at the fake API server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetbuild.errors import BlockedError, ClusterError, ForbiddenError
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.labels.api_labeller import ApiLabeller
from fleetbuild.extensions.kubernetes.labels.labeller import LabelTargets
from fleetbuild.models import Manifest
from tests.factories.cluster_api import FakeApi, Say

HARDWARE = {"x.dev/class": "cpu-avx2"}
NAMES = LabelTargets(
    "x.dev", nodes={"a": "kube-a", "b": "b", "c": "c"}, hardware={"a": HARDWARE, "b": HARDWARE}
)
SERVED = Manifest(release="default", id="r1", group="g", python="/p", wheels=(), verified=True)
RELEASE = {"x.dev/group": "g", "x.dev/release": "r1"}


@pytest.fixture
def labels(client: Client, api: FakeApi) -> ApiLabeller:
    api.add("kube-a", "b")
    return ApiLabeller(NAMES, client)


def ours(api: FakeApi, name: str) -> dict[str, str]:
    labels = api.nodes[name].labels
    return {key: value for key, value in labels.items() if key.startswith("x.dev/")}


def test_release_labels_are_set_and_removed_while_hardware_labels_stay(
    labels: ApiLabeller, api: FakeApi
) -> None:
    labels.prepare()
    assert not ours(api, "kube-a")
    done = labels.after({"a": SERVED, "b": SERVED, "c": SERVED})
    assert [(each.node, each.state) for each in done.values()] == [
        ("a", "labelled"), ("b", "labelled"), ("c", "no_node")
    ]  # fmt: skip
    assert done["a"].kubernetes_node == "kube-a"
    assert done["a"].labels == ours(api, "kube-a") == {**HARDWARE, **RELEASE}
    off = labels.before(["a", "c"])
    assert [each.state for each in off.values()] == ["labelled", "no_node"]
    assert ours(api, "kube-a") == HARDWARE
    assert ours(api, "b") == {**HARDWARE, **RELEASE}
    # While the next release is installed beside it, the old one goes on serving.
    labels.before(["b"], serves=True)
    assert ours(api, "b") == {**HARDWARE, "x.dev/group": "g"}
    labels.before(["b"])
    assert ours(api, "b") == HARDWARE


def test_labels_that_another_run_removed_do_not_come_back(
    labels: ApiLabeller, api: FakeApi, client: Client
) -> None:
    labels.after({"a": SERVED, "b": SERVED})
    other = ApiLabeller(NAMES, client)
    other.nodes_without_host()  # lists the Nodes
    labels.before(["a", "b"])  # as `remove` does
    other.before(["a"], serves=True)  # as an apply does before it installs
    assert ours(api, "kube-a") == HARDWARE
    other.settle({"b": None})  # as `emit labels` does for a node whose release is unknown
    assert ours(api, "b") == HARDWARE


def test_hardware_labels_that_another_run_changed_do_not_come_back(
    labels: ApiLabeller, api: FakeApi, client: Client
) -> None:
    labels.after({"a": SERVED})
    stranger = ApiLabeller(LabelTargets("x.dev", nodes=NAMES.nodes), client)
    stranger.nodes_without_host()
    newer = {"x.dev/class": "cpu-avx512"}
    ApiLabeller(replace(NAMES, hardware={"a": newer}), client).after({"a": SERVED})
    stranger.before(["a"])
    assert ours(api, "kube-a") == newer


def test_unknown_hardware_labels_stay(labels: ApiLabeller, api: FakeApi, client: Client) -> None:
    labels.after({"a": SERVED})
    stranger = ApiLabeller(LabelTargets("x.dev", nodes=NAMES.nodes), client)
    stranger.before(["a"])
    assert ours(api, "kube-a") == HARDWARE
    stranger.after({"a": SERVED})
    assert ours(api, "kube-a") == {**HARDWARE, **RELEASE}


def test_nodes_are_listed_once(labels: ApiLabeller, api: FakeApi) -> None:
    labels.prepare()
    labels.before(["a"])
    labels.after({"a": SERVED})
    assert [asked.path for asked in api.asked if asked.verb == "GET"] == ["/api/v1/nodes"]


def test_nodes_without_a_host_are_named(labels: ApiLabeller, api: FakeApi) -> None:
    api.add("a", "control-plane")  # the host a is called kube-a there
    assert labels.nodes_without_host() == ("a", "control-plane")


@pytest.mark.parametrize(
    ("code", "error"),
    [(401, ClusterError), (403, ForbiddenError), (503, ClusterError), (409, None)],
)
def test_missing_rights_are_an_error_before_any_node_is_labelled(
    labels: ApiLabeller, api: FakeApi, code: int, error: type[Exception] | None
) -> None:
    api.refuse(Say(code, "no"), "PATCH")
    if error:
        with pytest.raises(error):
            labels.prepare()
    else:
        labels.prepare()


def test_a_cluster_without_the_hosts_is_an_error(client: Client, api: FakeApi) -> None:
    api.add("x")
    with pytest.raises(BlockedError, match="None of the 3 hosts"):
        ApiLabeller(NAMES, client).prepare()
    ApiLabeller(LabelTargets("x.dev"), client).prepare()  # nobody to be labelled


def test_a_host_whose_node_may_have_another_name_is_refused(client: Client, api: FakeApi) -> None:
    """Its pods may mount the removed release."""
    api.add("b", "a.example.com", "c.one.com", "c.two.com", "d.example.com")
    hosts = ("a", "b", "c", "d.example.com", "d", "e")
    labels = ApiLabeller(LabelTargets("x.dev", nodes={name: name for name in hosts}), client)
    done = labels.after(dict.fromkeys(hosts, SERVED))
    states = ["refused", "labelled", "refused", "labelled", "no_node", "no_node"]
    assert [each.state for each in done.values()] == states
    assert "has no Node c, but c.one.com, c.two.com." in str(done["c"].reason)
    assert "kubernetes.node_name" in str(done["c"].fix)
    assert labels.nodes_without_host() == ("a.example.com", "c.one.com", "c.two.com")
    assert labels.in_use(["a", "e"], "/opt").keys() == {"a"}
