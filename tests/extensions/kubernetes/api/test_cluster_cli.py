"""`emit --apply` from the command line, at the fake API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Ran

from fleetbuild.apply.serving import note_reply
from fleetbuild.cli import app
from fleetbuild.cli.show.status import status_ending
from fleetbuild.extensions.kubernetes.api import Cluster
from fleetbuild.extensions.kubernetes.cluster_labels import compare_labels
from fleetbuild.extensions.kubernetes.labels.labeller import LabelTargets
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Facts,
    Manifest,
    NodeHardware,
    NodeResult,
    NodeStatus,
    Plan,
    PlannedNode,
    Result,
)  # fmt: skip
from fleetbuild.models.serving import as_planned
from fleetbuild.plan.document.serialize import dump_plan, with_digest
from fleetbuild.state import StateDir
from tests.factories.cluster_api import TOKEN, FakeApi, ours
from tests.factories.plans import RELEASE_ID, reused_plan


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., None]:
    """Keep a plan, what came of it, and what the nodes said."""

    def keep(made: Plan, **states: Any) -> None:
        state = StateDir(tmp_path / "state").create()
        state.plan_file.write_text(dump_plan(made))
        nodes = tuple(
            NodeResult(node=name, state=each, release_id=RELEASE_ID)
            for name, each in states.items()
        )
        result = Result(plan_digest=made.digest, nodes=nodes)
        state.save_result(result, started="2026-01-01T00:00:00+00:00")
        for name, manifest in as_planned(made, states).items():
            if states.get(name) == "installed" and manifest:
                note_reply(state, name, manifest)

    return keep


@pytest.fixture
def emit(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("time.sleep", lambda _: None)

    def call(*args: str, token: str = TOKEN) -> Ran:
        kubeconfig = api.kubeconfig(tmp_path, token=token)
        words = ["emit", "labels", "--state-dir", "state", "--apply", "--kubeconfig"]
        return CliRunner().invoke(app, [*words, str(kubeconfig), *args])

    return call


def test_verified_nodes_get_all_labels_and_others_what_their_hardware_says(
    emit: Callable[..., Ran], save: Callable[..., None], api: FakeApi
) -> None:
    made = reused_plan("a", "b", "c", called={"a": "kube-a"})
    other = made.nodes["c"].model_copy(update={"current": "of-before"})
    made = with_digest(made.model_copy(update={"nodes": {**made.nodes, "c": other}}))
    save(made, a="installed", b="verify_failed")
    api.add("kube-a", "b", "c", "control-plane")
    for name in ("b", "c"):
        api.nodes[name].labels["fleetbuild.dev/release"] = "of-before"
        api.nodes[name].owners["fleetbuild", "Apply"] = {"fleetbuild.dev/release"}
    ran = emit()
    assert ran.exit_code == 0, ran.output
    assert ours(api, "kube-a") == {
        "class": "cpu-avx2", "isa": "avx2", "group": "cpu-avx2-cp311", "release": RELEASE_ID,
    }  # fmt: skip
    assert ours(api, "b") == {"class": "cpu-avx2", "isa": "avx2"}
    assert ours(api, "c") == {"class": "cpu-avx2", "isa": "avx2", "release": "of-before"}
    assert "Nodes of the cluster that are not in the inventory: control-plane" in ran.output
    assert "3 nodes: 3 labelled." in ran.output
    assert (Path("state") / "manifests" / "labels" / "labels.sh").exists()


def test_a_blocked_node_on_which_nothing_serves_loses_the_labels_of_the_release(
    emit: Callable[..., Ran], save: Callable[..., None], api: FakeApi
) -> None:
    made = reused_plan("a")
    blocked = {
        name: PlannedNode(state="blocked", kubernetes_node=name, current=current)
        for name, current in (("bare", None), ("serving", RELEASE_ID))
    }
    away = PlannedNode(state="unreachable", kubernetes_node="away")
    nodes = {**made.nodes, **blocked, "away": away}
    save(with_digest(made.model_copy(update={"nodes": nodes})), a="installed")
    labels = {"fleetbuild.dev/release": RELEASE_ID, "fleetbuild.dev/class": "cpu-avx2"}
    api.add("a", "bare", "serving", "away")
    for name in ("bare", "serving", "away"):
        api.nodes[name].labels |= labels
        api.nodes[name].owners["fleetbuild", "Apply"] = set(labels)
    ran = emit()
    assert ran.exit_code == 0, ran.output
    assert ours(api, "bare") == {"class": "cpu-avx2"}
    assert ours(api, "serving") == ours(api, "away") == {"class": "cpu-avx2", "release": RELEASE_ID}
    assert "2 nodes: 2 labelled." in ran.output


def test_a_blocked_host_has_the_class_of_its_hardware_and_loses_one_that_it_does_not_meet(
    emit: Callable[..., Ran], save: Callable[..., None], api: FakeApi
) -> None:
    made = reused_plan("a")
    blocked = {
        name: PlannedNode(
            state="blocked",
            kubernetes_node=name,
            hardware=NodeHardware(arch="x86_64", features=tuple(RUNGS[isa].features)),
        )
        for name, isa in (("newer", "avx512"), ("older", "avx"))
    }
    save(with_digest(made.model_copy(update={"nodes": {**made.nodes, **blocked}})), a="installed")
    api.add("a", "newer", "older")
    api.nodes["older"].labels["fleetbuild.dev/class"] = "cpu-avx2"
    api.nodes["older"].owners["fleetbuild", "Apply"] = {"fleetbuild.dev/class"}
    assert emit().exit_code == 0
    assert ours(api, "newer") == {"class": "cpu-avx2", "isa": "avx2"}
    assert ours(api, "older") == {}


def test_kubelets_write_names_in_lower_case(
    emit: Callable[..., Ran], save: Callable[..., None], api: FakeApi, tmp_path: Path
) -> None:
    save(reused_plan("Node-A.Example.com", "B"), **{"Node-A.Example.com": "installed"})
    api.add("node-a.example.com", "b")
    ran = emit()
    assert ran.exit_code == 0, ran.output
    assert ours(api, "node-a.example.com")["release"] == RELEASE_ID
    assert ours(api, "b") == {"class": "cpu-avx2", "isa": "avx2"}
    assert "no host here" not in ran.output
    written = (tmp_path / "state" / "manifests" / "labels" / "labels.sh").read_text()
    assert "node node-a.example.com " in written
    found = {"B": NodeStatus(node="B", state="ok")}
    names = LabelTargets("fleetbuild.dev", nodes={"B": "b"})
    compared = compare_labels(found, {}, names, Cluster(api.kubeconfig(tmp_path)), limited=True)
    assert compared["B"].labels == "right"


def test_problems_with_labels_are_reported_and_decide_the_exit_code(
    emit: Callable[..., Ran], save: Callable[..., None], api: FakeApi
) -> None:
    save(reused_plan("a", "b", "c"), a="installed", b="installed", c="installed")
    api.add("a", "b")
    api.set("a", {"fleetbuild.dev/isa": "avx512"}, by="nfd-master")
    ran = emit("--json")
    assert ran.exit_code == 4
    said = json.loads(ran.stdout)
    assert [each["state"] for each in said["nodes"]] == ["conflict", "labelled", "no_node"]
    assert "nfd-master" in said["nodes"][0]["reason"]
    assert said["nodes_without_host"] == []
    assert "has no Node of its name." in ran.stderr
    assert emit("--force-conflicts").exit_code == 0
    assert ours(api, "a")["isa"] == "avx2"


def test_two_hosts_with_one_node_name_are_not_labelled(
    emit: Callable[..., Ran], save: Callable[..., None], api: FakeApi
) -> None:
    save(reused_plan("a", "b", "c", called={"a": "n", "b": "n"}), a="installed", b="installed")
    api.add("n", "c")
    ran = emit()
    assert ran.exit_code == 4
    assert "a, b all have the Node name n" in ran.output
    assert ours(api, "n") == {}
    assert ours(api, "c")


@pytest.mark.parametrize(
    "args",
    [
        ("nfd", "--apply"),
        ("labels", "--context", "x"),
        ("labels", "--force-conflicts"),
        ("k8s", "--kubeconfig", "x"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, args: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(app, ["emit", *args, "--state-dir", str(tmp_path)])
    assert ran.exit_code == 2
    assert "--apply" in ran.output


def test_status_shows_drift_of_labels(api: FakeApi, tmp_path: Path) -> None:
    manifest = Manifest(
        release="default", id="r1", group="g", python="/p", wheels=(), verified=True
    )
    facts = Facts(release={"default": manifest})
    api.add("a", "b", labels={"fleetbuild.dev/release": "r1", "fleetbuild.dev/group": "g"})
    api.set("b", {"fleetbuild.dev/release": "r0"}, by="kubectl-label")
    found = {name: NodeStatus(node=name, state="ok") for name in "abc"}
    cluster = Cluster(api.kubeconfig(tmp_path))
    about = found, dict.fromkeys("abc", facts), LabelTargets("fleetbuild.dev"), cluster
    compared = compare_labels(*about)
    assert {name: status.labels for name, status in compared.items()} == {
        "a": "right", "b": "wrong", "c": "no_node"
    }  # fmt: skip
    assert len(api.asked) == 1
    wrong, fix, *_, counts = status_ending(compared)
    assert wrong.startswith("wrong labels: b: Labels: ")
    assert fix == "  fix: fleetbuild emit labels --apply"
    assert counts == "3 nodes, 0 with a release, 1 with wrong labels."
    assert (
        status_ending(compare_labels(*about, by="nfd"))[1] == "  fix: fleetbuild verify INVENTORY"
    )


def test_a_labelled_node_outside_the_inventory_is_reported(api: FakeApi, tmp_path: Path) -> None:
    api.add("a", "control-plane")
    api.add("gone", labels={"fleetbuild.dev/release": "r1", "fleetbuild.dev/class": "cpu-avx2"})
    api.add("other", labels={"fleetbuild.dev/release.staging": "r1"})
    found = {"a": NodeStatus(node="a", state="ok")}
    names = LabelTargets(
        "fleetbuild.dev", nodes={"a": "a", "gone": "gone"}
    )  # the last plan knows it
    cluster = Cluster(api.kubeconfig(tmp_path))
    compared = compare_labels(found, {}, names, cluster)
    assert list(compared) == ["a", "node/gone"]
    assert compared["node/gone"].labels == "no_host"
    assert compared["node/gone"].labels_sentence.endswith(
        "Remove its labels: kubectl label node gone fleetbuild.dev/release-"
    )
    said, counts = status_ending(compared)
    assert said.startswith("labelled with this release, but not in the inventory: node/gone: ")
    assert counts.startswith("1 node, ")
    assert "drifted" not in counts
    assert list(compare_labels(found, {}, names, cluster, limited=True)) == ["a"]
