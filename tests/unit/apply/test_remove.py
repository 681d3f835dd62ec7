"""`fleetbuild remove`: nodes, labels and the saved state, with a playbook that answers as told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetbuild import Fleet
from fleetbuild.apply.remove import remove_releases
from fleetbuild.models import (
    Config,
    Event,
    Facts,
    Inventory,
    Login,
    Manifest,
    Node,
    NodeResult,
    Result,
)
from fleetbuild.models.problem import Problem
from fleetbuild.models.role_parameters import RemoveSpec
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.state import StateDir
from tests.factories.fleets import facts
from tests.factories.followers import Told
from tests.factories.plans import reused_plan
from tests.factories.runs import answer, ended, event

SERVED = Manifest(
    release="default", id="r1", group="g", python="/p", wheels=(), verified=True
)  # fmt: skip
GONE = {"ok": True, "active": False, "release_id": "", "pruned": ["r0", "r1"], "kept": []}
KEPT = [{"release_id": "r0", "reason": "It is mounted by process 7."}]


class Removal:
    def __init__(self, tmp_path: Path, **replies: Any) -> None:
        self.state, self.replies = StateDir(tmp_path), replies
        self.facts = {name: facts("avx", release={"default": SERVED}) for name in replies}
        self.asked: dict[str, Any] = {}
        self.told: list[Event] = []
        self.labels = Told()
        left = tuple(
            NodeResult(node=name, state="installed", release_id="r1", group="g") for name in replies
        )
        self.state.create().save_result(
            Result(plan_digest="", nodes=left), started="2026-01-01T00:00:00+00:00",
            release="default",
        )  # fmt: skip

    def playbook(self, name: str, *, limit: Any, extravars: Any, on_event: Any) -> Any:
        assert name == "remove.yml"
        self.asked = extravars["fleetbuild_removals"]
        assert list(limit) == sorted(self.asked)
        hosts = {}
        for host in self.asked:
            reply = self.replies[host]
            if isinstance(reply, str):
                if reply == "failed":
                    on_event(event(host, "Remove the releases", {}, "failed", "Read-only disk."))
                hosts[host] = ended(reply)
            else:
                answer(on_event, host, reply, "install")
                self.facts[host] = facts("avx")
        return hosts

    def run(self, release: str = "default") -> dict[str, NodeResult]:
        nodes = tuple(Node(name=name, login=Login(host=name)) for name in self.facts)
        result = remove_releases(
            Inventory(source="i", nodes=nodes),
            RemoveSpec(path="/opt/fleetbuild", release=release, controller="me"),
            state=self.state,
            probe=lambda nodes, _: {node.name: self.facts[node.name] for node in nodes},
            run_playbook=self.playbook,
            follower=self.labels,
            on_event=self.told.append,
        )
        return {node.node: node for node in result.nodes}


def test_each_node_names_its_removed_and_kept_releases(tmp_path: Path) -> None:
    fleet = Removal(
        tmp_path, a=GONE, b={**GONE, "pruned": ["r1"], "kept": KEPT}, bare={**GONE, "pruned": []},
        used={**GONE, "pruned": [], "kept": KEPT},
        broken="failed", away="unreachable",
    )  # fmt: skip
    fleet.facts["down"] = Facts(state="unreachable", reason="no route")
    fleet.facts["python-less"] = facts("avx").model_copy(update={"pythons": ()})
    nodes = fleet.run()
    assert {name: node.state for name, node in nodes.items()} == {
        "a": "removed", "b": "removed", "bare": "skipped", "used": "skipped",
        "broken": "install_failed",
        "away": "unreachable", "down": "unreachable", "python-less": "skipped",
    }  # fmt: skip
    assert nodes["a"].reason == "2 releases removed from /opt/fleetbuild."
    assert nodes["used"].reason == "Nothing was removed from /opt/fleetbuild: 1 release in use."
    assert nodes["bare"].reason == "No release is there."
    assert str(nodes["python-less"].reason).endswith("no Python, so no release was made there.")
    assert nodes["used"].kept == nodes["b"].kept
    assert nodes["b"].kept[0].reason == "It is mounted by process 7."
    assert "Read-only disk." in str(nodes["broken"].reason)
    assert {str(each.node): each.state for each in fleet.told if each.stage == "activate"} == {
        "a": "ok", "b": "ok", "bare": "ok", "used": "ok", "broken": "failed", "away": "unreachable"
    }  # fmt: skip
    assert fleet.asked["a"] == {
        "path": "/opt/fleetbuild", "release": "default", "controller": "me", "in_use": {}
    }  # fmt: skip


def test_labels_go_first_and_a_node_that_failed_gets_them_back(tmp_path: Path) -> None:
    fleet = Removal(tmp_path, a=GONE, broken="failed")
    fleet.run()
    assert fleet.labels.log[0] == "prepare"
    assert set(fleet.labels.log[1:3]) == {"empty a", "empty broken"}
    assert fleet.labels.log[3:] == ["on broken=r1"]


def test_status_does_not_miss_removed_releases(tmp_path: Path) -> None:
    fleet = Removal(tmp_path, a=GONE, broken="failed")
    fleet.run()
    assert list(fleet.state.left_there("default")) == ["broken"]


def test_a_node_without_a_release_is_not_missed_either(tmp_path: Path) -> None:
    fleet = Removal(tmp_path, reinstalled={**GONE, "pruned": []}, empty=GONE, away="unreachable")
    fleet.facts["empty"] = facts("avx").model_copy(update={"pythons": ()})
    fleet.state.mark_changing(["reinstalled", "empty", "away"])
    assert fleet.run()["reinstalled"].state == "skipped"
    assert list(fleet.state.left_there("default")) == ["away"]
    assert not fleet.state.is_reserved("reinstalled")
    assert not fleet.state.is_reserved("empty")
    assert fleet.state.is_reserved("away")


NO_PODS = Problem("u may not list pods: no.", "Add this rule.")


def test_nothing_is_removed_where_pods_cannot_be_listed(tmp_path: Path) -> None:
    fleet = Removal(tmp_path, a=GONE, b=GONE)
    fleet.labels.mounted = {"b": NO_PODS}
    nodes = fleet.run()
    assert (nodes["a"].state, nodes["b"].state) == ("removed", "blocked")
    assert str(nodes["b"].reason).endswith("nothing was removed there: u may not list pods: no.")
    assert nodes["b"].fix == "Add this rule."
    assert list(fleet.asked) == ["a"]
    assert fleet.labels.log == ["prepare", "empty a"]  # b keeps its labels
    assert list(fleet.state.left_there("default")) == ["b"]


def test_an_api_server_that_falls_silent_after_the_labels_went_stops_the_removal(
    tmp_path: Path,
) -> None:
    fleet = Removal(tmp_path, a=GONE)
    before = fleet.labels.before

    def then_silent(names: Any, **more: Any) -> Any:
        fleet.labels.mounted = {"a": NO_PODS}
        return before(names, **more)

    fleet.labels.before = then_silent  # type: ignore[method-assign]
    assert fleet.run()["a"].state == "blocked"
    assert not fleet.asked
    assert fleet.labels.log == ["prepare", "empty a", "on a=r1"]


def test_pods_are_asked_for_releases_below_the_folder_of_their_name(tmp_path: Path) -> None:
    fleet = Removal(tmp_path, a=GONE)
    fleet.run(release="staging")
    assert fleet.labels.roots == ["/opt/fleetbuild/staging", "/opt/fleetbuild/staging"]


def test_status_names_nodes_that_left_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Removal(tmp_path, a=GONE, w07=GONE)
    inventory = Inventory(source="i.yml", nodes=(Node(name="a", login=Login(host="a")),))
    told: list[Event] = []
    fleet = Fleet(inventory, config=Config(), state_dir=tmp_path)
    fleet.save_plan(with_digest(reused_plan("a").model_copy(update={"inventory": "i.yml"})))
    monkeypatch.setattr("fleetbuild.apply.wiring.probe_nodes", lambda *_, **__: {"a": facts("avx")})
    fleet.status(on_event=told.append)
    (warning,) = told
    assert "still with a release: w07" in warning.message
    assert warning.fix.endswith("fleetbuild remove 'w07,'")
