"""Labels after a rollback say what serves: by every way of labelling, and by `status`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import fleetbuild
from fleetbuild.apply.fleet_task import run_fleet_task
from fleetbuild.apply.rollback import rollback_task
from fleetbuild.extension import Follower
from fleetbuild.extensions.kubernetes.api import Cluster
from fleetbuild.extensions.kubernetes.cluster_labels import label
from fleetbuild.models import (
    Config,
    Event,
    Facts,
    Inventory,
    Login,
    Manifest,
    ManifestWheel,
    Node,
    NodeResult,
    Plan,
    Result,
    Unreachable,
)
from fleetbuild.models.serving import as_planned
from fleetbuild.probe.facts import facts_from, keep
from fleetbuild.state import StateDir
from tests.factories.cluster_api import FakeApi, ours
from tests.factories.plans import RELEASE_ID, reused_plan

OLD = Manifest(
    release="default", id="older", group="cpu-avx-cp311", python="/p", verified=True,
    wheels=(
        ManifestWheel(
            package="p", version="0.9+cpu.avx", artifact_key="0" * 32, sha256="0" * 64
        ),
    ),
)  # fmt: skip
BACK = {"class": "cpu-avx2", "isa": "avx2", "group": "cpu-avx-cp311", "release": "older"}
NEW = {**BACK, "group": "cpu-avx2-cp311", "release": RELEASE_ID}
FLEET = Inventory(
    source="i.yml", nodes=tuple(Node(name=name, login=Login(host=name)) for name in ("a", "b"))
)


class Nodes:
    """Nodes that serve the plan's release, and can go back to the one before."""

    def __init__(self, state: StateDir, plan: Plan) -> None:
        self.state, self.plan = state, plan
        self.serve: dict[str, Manifest | None] = dict(as_planned(plan, {"a", "b"}))
        self.lost: set[str] = set()

    def probe(self, nodes: Sequence[Node], _: object) -> dict[str, Facts]:
        captures = {node.name: self._capture(node.name) for node in nodes}
        keep(self.state, captures)
        return facts_from(captures)

    def _capture(self, name: str) -> Any:
        served = self.serve[name]
        if name in self.lost:
            return Unreachable(reason="no route")
        return {"uname": "Linux 6 x86_64", "release": served.model_dump_json() if served else ""}

    def playbook(
        self, _: str, *, limit: Sequence[str], extravars: object, on_event: Callable[[Any], None]
    ) -> dict[str, Any]:
        assert extravars
        for name in limit:
            self.serve[name] = OLD
            reply = {"ok": True, "active": True, "release_id": OLD.id}
            on_event(
                SimpleNamespace(host=name, task="Result", state="ok", result=reply, message="")
            )
        return {name: SimpleNamespace(state="ok", message="", log=None) for name in limit}

    def apply(self) -> None:
        """As an apply leaves the state directory."""
        self.probe(FLEET.nodes, None)
        nodes = tuple(
            NodeResult(node=name, group="cpu-avx2-cp311", state="installed", release_id=RELEASE_ID)
            for name in ("a", "b")
        )
        result = Result(plan_digest=self.plan.digest, nodes=nodes)
        self.state.save_result(result, started="2026-01-01T00:00:00+00:00", release="default")

    def roll_back(self) -> Result:
        def heard(event: Event) -> None:
            if event.stage == "activate" and event.node in self.lost_after:
                self.lost.add(str(event.node))

        return run_fleet_task(
            rollback_task("/opt/fleetbuild", "default", "me"), FLEET,
            release="default", expected={},
            state=self.state, probe=self.probe, run_playbook=self.playbook, on_event=heard,
            follower=Follower(),
        )  # fmt: skip

    lost_after: frozenset[str] = frozenset()


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(StateDir(tmp_path).create(), reused_plan("a", "b"))
    made.apply()
    return made


def labels_sh(files: dict[str, str], api: FakeApi, folder: Path) -> None:
    """Run labels.sh with a kubectl that labels the Nodes of this API."""
    kubectl = folder / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@" >>"$OUT"\n')
    kubectl.chmod(0o755)
    environment = {"PATH": f"{folder}:/bin:/usr/bin", "OUT": str(folder / "out")}
    subprocess.run(["/bin/sh", "-c", files["labels.sh"]], env=environment, check=True)
    for line in (folder / "out").read_text().splitlines():
        _, _, _, name, *words = line.split()
        changes: dict[str, Any] = {word[:-1]: None for word in words if word.endswith("-")}
        changes |= dict(word.split("=") for word in words if "=" in word)
        api.set(name, changes, by="kubectl-label")


def nodes_yaml(files: dict[str, str], api: FakeApi, _: Path) -> None:
    for document in yaml.safe_load_all(files["nodes.yaml"]):
        node = api.nodes[document["metadata"]["name"]]
        body = SimpleNamespace(body=document, query={"force": "true"})
        api._apply(node, body, "fleetbuild")  # type: ignore[arg-type]


def rendered(nodes: Nodes, kind: Any = "labels") -> dict[str, str]:
    return dict(fleetbuild.Fleet(state_dir=nodes.state.root).emit(kind, plan=nodes.plan).files)


@pytest.mark.parametrize(
    ("put", "kind"), [(labels_sh, "labels"), (labels_sh, "k8s"), (nodes_yaml, "labels")]
)
def test_after_a_rollback_emitted_files_name_the_previous_release(
    nodes: Nodes, api: FakeApi, tmp_path: Path, put: Callable[..., None], kind: str
) -> None:
    api.add("a", "b")
    put(rendered(nodes, kind), api, tmp_path)
    assert ours(api, "a") == ours(api, "b") == NEW
    result = nodes.roll_back()
    assert {(node.state, node.group) for node in result.nodes} == {("rolled_back", OLD.group)}
    put(rendered(nodes, kind), api, tmp_path)
    assert ours(api, "a") == ours(api, "b") == BACK


def test_after_a_rollback_feature_files_name_the_previous_release(nodes: Nodes) -> None:
    nodes.roll_back()
    files = rendered(nodes, "nfd")
    lines = [line for line in files["a"].splitlines() if not line.startswith("#")]
    assert dict(line.removeprefix("fleetbuild.dev/").split("=") for line in lines) == BACK


def test_after_a_rollback_api_labels_name_the_previous_release_and_status_agrees(
    nodes: Nodes, api: FakeApi, tmp_path: Path
) -> None:
    api.add("a", "b")
    cluster = Cluster(api.kubeconfig(tmp_path))

    fleet = fleetbuild.Fleet(FLEET, config=Config(), cluster=cluster, state_dir=nodes.state.root)

    def labelled() -> None:
        label(fleet, plan=nodes.plan)

    def status() -> dict[str, Any]:
        fleet.save_plan(nodes.plan)
        found = fleet.status(offline=True)
        return {name: (each.drift, each.labels) for name, each in found.items()}

    labelled()
    assert ours(api, "a") == NEW
    assert status() == {"a": ("none", "right"), "b": ("none", "right")}
    nodes.roll_back()
    assert status() == {"a": ("none", "wrong"), "b": ("none", "wrong")}
    labelled()
    assert ours(api, "a") == ours(api, "b") == BACK
    assert status() == {"a": ("none", "right"), "b": ("none", "right")}


def test_a_node_that_was_lost_after_it_was_switched_keeps_its_labels(
    nodes: Nodes, api: FakeApi, tmp_path: Path
) -> None:
    api.add("a", "b")
    fleet = fleetbuild.Fleet(
        FLEET, config=Config(), cluster=Cluster(api.kubeconfig(tmp_path)),
        state_dir=nodes.state.root,
    )  # fmt: skip
    label(fleet, plan=nodes.plan)
    nodes.lost_after = frozenset({"b"})
    nodes.roll_back()
    emitted = fleet.emit("labels", plan=nodes.plan)
    files, told = emitted.files, emitted.warnings
    assert [n["metadata"]["name"] for n in yaml.safe_load_all(files["nodes.yaml"])] == ["a"]
    assert any(sentence.startswith("b: what it serves is unknown") for sentence in told), told
    label(fleet, plan=nodes.plan)
    assert (ours(api, "a"), ours(api, "b")) == (BACK, NEW)
    found = fleet.status(offline=True)
    assert found["b"].state == "unknown"
    nodes.lost.clear()
    nodes.probe(FLEET.nodes, None)
    label(fleet, plan=nodes.plan)
    assert ours(api, "b") == BACK
