"""What happens to a Node's labels, at a server that knows server-side apply."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from fleetbuild.kubernetes.api.client import Client
from fleetbuild.kubernetes.api.nodes import list_nodes
from fleetbuild.kubernetes.labels.apply import (
    AT_ONCE,
    Labelling,
    Outcome,
    WantedLabels,
    label_nodes,
)
from tests.factories.cluster_api import Asked, FakeApi, Say

DOMAIN = "fleetbuild.dev"
HARDWARE = {f"{DOMAIN}/class": "cpu-avx2", f"{DOMAIN}/isa": "avx2"}
RELEASE = {f"{DOMAIN}/group": "cpu-avx2-cp311", f"{DOMAIN}/release": "0123456789abcdef"}
OTHER = {f"{DOMAIN}/release.staging": "fedcba9876543210"}
ALL = WantedLabels(RELEASE, HARDWARE)
OURS = Labelling(DOMAIN)


def label(
    client: Client, labelling: Labelling = OURS, **wanted: WantedLabels
) -> dict[str, Outcome]:
    return label_nodes(client, list_nodes(client), wanted, labelling)


def states(outcomes: dict[str, Outcome]) -> dict[str, str]:
    return {name: outcome.state for name, outcome in outcomes.items()}


def on_patch(act: Callable[[str], None]) -> Callable[[Asked], None]:
    """Do this when a Node is patched, with its name."""
    return lambda asked: act(asked.path.rsplit("/")[-1]) if asked.verb == "PATCH" else None


def test_applies_our_labels_and_nothing_else(client: Client, api: FakeApi) -> None:
    api.add("a", labels={"team": "vision"})
    uid = api.nodes["a"].uid
    outcome = label(client, a=ALL)["a"]
    assert outcome.state == "labelled"
    assert api.nodes["a"].labels == {
        "kubernetes.io/hostname": "a", "team": "vision", **HARDWARE, **RELEASE
    }  # fmt: skip
    (asked,) = api.patches()
    assert (asked.path, asked.kind) == ("/api/v1/nodes/a", "application/apply-patch+yaml")
    assert asked.query == {
        "fieldManager": "fleetbuild", "force": "false", "fieldValidation": "Strict"
    }  # fmt: skip
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "uid": uid, "labels": {**HARDWARE, **RELEASE}},
    }


def test_labelling_again_changes_nothing(client: Client, api: FakeApi) -> None:
    api.add("a")
    label(client, a=ALL)
    version = api.nodes["a"].version
    assert states(label(client, a=ALL)) == {"a": "unchanged"}
    assert api.nodes["a"].version == version


def test_stale_labels_are_removed_and_hardware_labels_stay(client: Client, api: FakeApi) -> None:
    api.add("a", labels={"team": "vision"})
    label(client, a=ALL)
    assert states(label(client, a=WantedLabels(hardware=HARDWARE))) == {"a": "labelled"}
    assert api.nodes["a"].labels == {"kubernetes.io/hostname": "a", "team": "vision", **HARDWARE}


def test_unknown_hardware_labels_are_kept(client: Client, api: FakeApi) -> None:
    api.add("a")
    label(client, a=ALL)
    label(client, a=WantedLabels())
    assert api.nodes["a"].labels.keys() == {"kubernetes.io/hostname", *HARDWARE}


def test_releases_side_by_side_keep_their_labels(client: Client, api: FakeApi) -> None:
    api.add("a")
    staging = Labelling(DOMAIN, "staging")
    label(client, a=ALL)
    label(client, staging, a=WantedLabels(OTHER, HARDWARE))
    assert api.nodes["a"].labels.items() >= {**HARDWARE, **RELEASE, **OTHER}.items()
    label(client, a=WantedLabels(hardware=HARDWARE))
    assert api.nodes["a"].labels.items() >= OTHER.items()
    assert not api.nodes["a"].labels.keys() & RELEASE.keys()


def test_a_conflict_names_the_other_owner_and_the_label(client: Client, api: FakeApi) -> None:
    api.add("a", "b")
    api.set("a", {f"{DOMAIN}/release": "mine"}, by="kubectl-label")
    outcomes = label(client, a=ALL, b=ALL)
    assert states(outcomes) == {"a": "conflict", "b": "labelled"}
    assert "kubectl-label" in str(outcomes["a"].reason)
    assert f"{DOMAIN}/release" in str(outcomes["a"].reason)
    assert "--force-conflicts" in str(outcomes["a"].fix)
    assert api.nodes["a"].labels[f"{DOMAIN}/release"] == "mine"
    assert f"{DOMAIN}/isa" not in api.nodes["a"].labels


def test_a_conflict_is_taken_over_on_request(client: Client, api: FakeApi) -> None:
    api.add("a")
    api.set("a", {f"{DOMAIN}/release": "mine"}, by="kubectl-label")
    assert states(label(client, Labelling(DOMAIN, force=True), a=ALL)) == {"a": "labelled"}
    assert api.nodes["a"].labels.items() >= RELEASE.items()


def test_a_stale_label_with_another_owner_remains_and_is_reported(
    client: Client, api: FakeApi
) -> None:
    api.add("a")
    api.set("a", RELEASE, by="kubectl-label")
    assert states(label(client, a=ALL)) == {"a": "labelled"}  # the same value does not conflict
    outcome = label(client, a=WantedLabels(hardware=HARDWARE))["a"]
    assert outcome.state == "kept"
    assert "kubectl-label" in str(outcome.reason)
    forced = label(client, Labelling(DOMAIN, force=True), a=WantedLabels(hardware=HARDWARE))["a"]
    assert forced.state == "labelled"
    assert not api.nodes["a"].labels.keys() & RELEASE.keys()


def test_forbidden_names_the_rule_to_add(client: Client, api: FakeApi) -> None:
    api.add("a", "b")

    def forbid(name: str) -> None:
        if name == "a":
            raise Say(403, 'nodes "a" is forbidden: User "u" cannot patch resource', "Forbidden")

    api.before = on_patch(forbid)
    outcomes = label(client, a=ALL, b=ALL)
    assert states(outcomes) == {"a": "forbidden", "b": "labelled"}
    assert "cannot patch" in str(outcomes["a"].reason)
    assert '{apiGroups: [""], resources: [nodes], verbs: [patch]}' in str(outcomes["a"].fix)


def test_credentials_that_expire_meanwhile_are_an_error(client: Client, api: FakeApi) -> None:
    api.add("a", "b", "c")

    def expire(name: str) -> None:
        if name != "a":
            raise Say(401, "Unauthorized", "Unauthorized")

    api.before = on_patch(expire)
    outcomes = label(client, a=ALL, b=ALL, c=ALL)
    assert states(outcomes) == {"a": "labelled", "b": "unauthorized", "c": "unauthorized"}
    assert "Log in again" in str(outcomes["b"].fix)


def test_a_node_deleted_meanwhile_is_not_created_again(client: Client, api: FakeApi) -> None:
    api.add("a", "b")
    api.before = on_patch(lambda _: api.nodes.pop("a", None) and None)
    outcomes = label(client, a=ALL, b=ALL)
    assert states(outcomes) == {"a": "gone", "b": "labelled"}
    assert "a" not in api.nodes


def test_a_new_node_of_the_same_name_is_not_labelled(client: Client, api: FakeApi) -> None:
    api.add("a")
    api.before = on_patch(lambda _: api.add("a"))
    assert states(label(client, a=ALL)) == {"a": "gone"}
    assert api.nodes["a"].labels == {"kubernetes.io/hostname": "a"}


def test_a_node_that_is_not_found_counts_as_gone(client: Client, api: FakeApi) -> None:
    api.add("a")

    def lost(_: str) -> None:
        raise Say(404, 'nodes "a" not found', "NotFound")

    api.before = on_patch(lost)
    assert states(label(client, a=ALL)) == {"a": "gone"}


def test_a_refusal_by_the_server_is_reported(client: Client, api: FakeApi) -> None:
    api.add("a")

    def wrong(_: str) -> None:
        raise Say(422, "metadata.labels: Invalid value", "Invalid")

    api.before = on_patch(wrong)
    outcome = label(client, a=ALL)["a"]
    assert outcome.state == "refused"
    assert "Invalid value" in str(outcome.reason)


def test_a_server_that_does_not_answer_is_retried(
    client: Client, api: FakeApi, waits: list[float]
) -> None:
    api.add("a", "b")
    api.before = on_patch(lambda name: time.sleep(0.4) if name == "a" else None)
    outcomes = label(client, a=ALL, b=ALL)
    assert states(outcomes) == {"a": "unreachable", "b": "labelled"}
    assert "no answer within 0.2 s, 4 attempts" in str(outcomes["a"].reason)
    assert len([asked for asked in api.patches() if asked.path.endswith("/a")]) == 4
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_server_is_retried(
    client: Client, api: FakeApi, waits: list[float], code: int
) -> None:
    api.add("a")
    left = [1, 1]

    def busy(_: str) -> None:
        if left:
            left.pop()
            raise Say(code, "busy", "TooManyRequests", details={"retryAfterSeconds": 3})

    api.before = on_patch(busy)
    assert states(label(client, a=ALL)) == {"a": "labelled"}
    assert waits == [3.0, 3.0]


def test_an_absent_server_is_retried_once_and_not_for_each_node(
    client: Client, api: FakeApi
) -> None:
    names = [f"n{number}" for number in range(4 * AT_ONCE)]
    api.add(*names)
    nodes = list_nodes(client)
    api.before = on_patch(lambda _: time.sleep(0.4))
    outcomes = label_nodes(client, nodes, dict.fromkeys(names, ALL), OURS)
    assert set(states(outcomes).values()) == {"unreachable"}
    assert any("stopped answering earlier" in str(each.reason) for each in outcomes.values())
    assert len({asked.path for asked in api.patches()}) < len(names)
