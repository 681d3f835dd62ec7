"""What changed on Nodes since they were last labelled: `emit labels --apply --events --metrics`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleetbuild import Cluster, Fleet
from fleetbuild.extensions.kubernetes import cluster_labels
from fleetbuild.extensions.kubernetes.api import events
from fleetbuild.extensions.kubernetes.cluster_labels import Labelled
from fleetbuild.plan.document.serialize import with_digest
from tests.factories.cluster_api import FakeApi, Say, ours
from tests.factories.plans import reused_plan
from tests.factories.schemas import NEWEST, accept

CLASS, ISA = "fleetbuild.dev/class", "fleetbuild.dev/isa"
Label = Callable[..., Labelled]


@pytest.fixture
def label(api: FakeApi, tmp_path: Path) -> Label:
    """Label the Nodes of a plan, with events and metrics."""

    def run(*nodes: str, folder: str = "state") -> Labelled:
        api.events.clear()
        fleet = Fleet(state_dir=tmp_path / folder, cluster=Cluster(api.kubeconfig(tmp_path)))
        plan = with_digest(reused_plan(*nodes))
        return cluster_labels.label(fleet, plan=plan, events=True, metrics=tmp_path / "metrics")

    return run


def told(api: FakeApi) -> dict[str, tuple[str, str]]:
    for event in api.events:
        accept(event, NEWEST)
    return {each["regarding"]["name"]: (each["type"], each["reason"]) for each in api.events}


def test_a_joining_node_is_one_event_and_then_none(
    api: FakeApi, label: Label, tmp_path: Path
) -> None:
    api.add("a", "b")
    label("a", "b")
    assert told(api) == {"a": ("Normal", "Labelled"), "b": ("Normal", "Labelled")}
    assert api.events[0]["regarding"]["uid"] == api.nodes["a"].uid
    assert api.events[0]["note"] == f"{CLASS}: was absent, is cpu-avx2; {ISA}: was absent, is avx2"
    label("a", "b")
    assert told(api) == {}
    label("a", "b", folder="another")  # a labeller that was moved remembers nothing
    assert told(api) == {}
    assert 'fleetbuild_nodes{class="cpu-avx2"} 2' in (tmp_path / "metrics").read_text()


def test_labels_that_somebody_took_off_are_set_again_with_an_event(
    api: FakeApi, label: Label
) -> None:
    api.add("a", "b")
    label("a", "b")
    api.set("a", {CLASS: None}, by="kubectl-label")  # type: ignore[dict-item]
    labelled = label("a", "b")
    assert told(api) == {"a": ("Warning", "LabelsRestored")}
    assert labelled.changes == (f"LabelsRestored: a: {CLASS}: was absent, is cpu-avx2",)
    assert ours(api, "a")["class"] == "cpu-avx2"


def test_labels_that_somebody_else_has_set_are_one_event(
    api: FakeApi, label: Label, tmp_path: Path
) -> None:
    api.add("a", "b")
    label("a", "b")
    api.set("a", {CLASS: "mine"}, by="kubectl-label")
    label("a", "b")
    assert told(api) == {"a": ("Warning", "LabelsRefused")}
    assert "kubectl-label" in api.events[0]["note"]
    label("a", "b")
    assert told(api) == {}
    assert (
        'fleetbuild_nodes_not_labelled{outcome="conflict"} 1'
        in (tmp_path / "metrics").read_text().splitlines()
    )


def test_the_event_of_a_changed_class_names_both(api: FakeApi, label: Label) -> None:
    api.add("a")
    before = {CLASS: "cpu-avx", ISA: "avx"}
    api.nodes["a"].labels |= before
    api.nodes["a"].owners["fleetbuild", "Apply"] = set(before)
    label("a")
    assert told(api) == {"a": ("Normal", "ClassChanged")}
    assert f"{CLASS}: was cpu-avx, is cpu-avx2" in api.events[0]["note"]


def test_a_node_that_left_is_one_event_and_another_of_its_name_joins(
    api: FakeApi, label: Label
) -> None:
    api.add("a", "b")
    label("a", "b")
    del api.nodes["a"]
    label("a", "b")
    assert told(api) == {"a": ("Normal", "NodeLeft")}
    label("a", "b")
    assert told(api) == {}
    api.add("a")
    label("a", "b")
    assert told(api) == {"a": ("Normal", "Labelled")}


def test_many_events_are_bounded_and_the_rest_is_counted(
    api: FakeApi, label: Label, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 2)
    api.add("a", "b", "c")
    labelled = label("a", "b", "c")
    assert len(api.events) == 2
    assert labelled.remarks == ("1 change more without an event: 2 a run.",)
    assert len(labelled.changes) == 3
    counted = 'fleetbuild_node_changes_total{reason="Labelled"} 3'
    assert counted in (tmp_path / "metrics").read_text().splitlines()


def test_a_login_that_may_not_write_events_labels_all_the_same(api: FakeApi, label: Label) -> None:
    api.add("a")
    api.refuse(Say(403, "events is forbidden", "Forbidden"), "POST")
    labelled = label("a")
    assert ours(api, "a")["class"] == "cpu-avx2"
    (remark,) = labelled.remarks
    assert "Changes are not recorded as events." in remark
    assert '{apiGroups: ["events.k8s.io"], resources: [events], verbs: [create]}' in remark
    assert labelled.exit_code == 0
