"""A change of kubernetes.labels removes what the former owner left, or names the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Ran

import fleetbuild
from fleetbuild.apply.serving import note_reply
from fleetbuild.cli import app
from fleetbuild.errors import BlockedError
from fleetbuild.extensions.kubernetes.api import Cluster
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.cluster_labels import label, unlabel
from fleetbuild.extensions.kubernetes.labels.api_labeller import ApiLabeller
from fleetbuild.extensions.kubernetes.labels.labeller import ManualLabels, targets_of_plan
from fleetbuild.extensions.kubernetes.labels.nfd_labeller import NfdLabeller
from fleetbuild.models import Manifest, Result
from fleetbuild.models.serving import as_planned
from fleetbuild.state import StateDir
from tests.factories.cluster_api import FakeApi, ours
from tests.factories.plans import RELEASE_ID, reused_plan

PLAN = reused_plan("a", "b")
SERVED = {name: made for name, made in as_planned(PLAN, {"a", "b"}).items() if made}
FILE = "/etc/kubernetes/node-feature-discovery/features.d/fleetbuild"


class NfdNodes:
    """Nodes with nfd-worker: what their feature files say is on their Nodes."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.files, self.fails = api, dict[str, dict[str, str]](), ""
        self.asked: list[str] = []

    def playbook(
        self, _: str, *, limit: Any, extravars: Mapping[str, Any], on_event: object
    ) -> dict[str, Any]:
        assert on_event
        (jobs,) = extravars.values()
        self.asked += limit
        hosts = {}
        for name, job in jobs.items():
            hosts[name] = type("Host", (), {"state": self.fails or "ok", "message": "no route"})()
            if not self.fails:
                assert job["file"] == FILE
                self.files[name] = job["labels"]
        return hosts

    def look(self) -> None:
        """A minute goes by: JSON patches, which ask nobody whose a label is."""
        for name, labels in self.files.items():
            node = self.api.nodes[name]
            owned = node.owners.get(("nfd-master", "Update"), set())
            gone: dict[str, Any] = dict.fromkeys(owned - labels.keys())
            self.api.set(name, {**gone, **labels}, by="nfd-master")


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = StateDir(tmp_path / "state").create()
    fleetbuild.save_plan(PLAN, made.plan_file)
    return made


@pytest.fixture
def nfd_nodes(api: FakeApi) -> NfdNodes:
    api.add("a", "b")
    return NfdNodes(api)


@pytest.fixture
def nfd(nfd_nodes: NfdNodes, state: StateDir) -> NfdLabeller:
    return NfdLabeller(targets_of_plan(PLAN), nfd_nodes.playbook, state)


@pytest.fixture
def emit(api: FakeApi, tmp_path: Path, state: StateDir) -> Callable[..., Ran]:
    def call(*args: str) -> Ran:
        kubeconfig = str(api.kubeconfig(tmp_path))
        words = ["emit", "labels", "--state-dir", str(state.root), "--kubeconfig", kubeconfig]
        return CliRunner().invoke(app, [*words, *args], env={"COLUMNS": "200"})

    return call


def labeller(client: Client, state: StateDir, nfd: NfdLabeller) -> ApiLabeller:
    return ApiLabeller(targets_of_plan(PLAN), client, state=state, former=nfd)


def test_feature_files_are_removed_when_the_api_sets_labels(
    nfd: NfdLabeller, nfd_nodes: NfdNodes, api: FakeApi, client: Client, state: StateDir
) -> None:
    nfd.after(SERVED)
    nfd_nodes.look()
    assert ours(api, "a")["release"] == RELEASE_ID
    told = labeller(client, state, nfd).prepare()
    assert told.startswith(f"a, b: removed {FILE}.")
    assert nfd_nodes.files == {"a": {}, "b": {}}
    # nfd-worker has not looked yet, and would take off labels that are put there now.
    early = labeller(client, state, nfd).after(SERVED)
    assert {each.state for each in early.values()} == {"conflict"}
    assert FILE in str(early["a"].fix)
    nfd_nodes.look()
    labels = labeller(client, state, nfd)
    assert not labels.prepare()
    assert {each.state for each in labels.after(SERVED).values()} == {"labelled"}
    nfd_nodes.look()
    assert ours(api, "a")["release"] == RELEASE_ID


def test_feature_files_are_removed_when_the_user_sets_labels(
    nfd: NfdLabeller, nfd_nodes: NfdNodes
) -> None:
    nfd.after(SERVED)
    assert FILE in ManualLabels(nfd).prepare()
    assert nfd_nodes.files == {"a": {}, "b": {}}
    assert not ManualLabels(nfd).prepare()


@pytest.mark.parametrize(("state_of_host", "stops"), [("failed", True), ("unreachable", False)])
def test_a_feature_file_that_stays_is_named_and_tried_again(
    nfd: NfdLabeller, nfd_nodes: NfdNodes, state_of_host: str, stops: bool
) -> None:
    nfd.after(SERVED)
    nfd_nodes.fails = state_of_host
    if stops:
        with pytest.raises(BlockedError, match=r"a, b.*features\.d/fleetbuild was not removed"):
            ManualLabels(nfd).prepare()
    else:
        assert not ManualLabels(nfd).prepare()
    nfd_nodes.fails = ""
    assert ManualLabels(nfd).prepare()


def test_labelling_by_nfd_is_refused_while_labels_of_the_api_remain(
    nfd: NfdLabeller, api: FakeApi, client: Client, state: StateDir, emit: Callable[..., Ran]
) -> None:
    labeller(client, state, nfd).after(SERVED)
    with pytest.raises(BlockedError, match="set through the API server") as blocked:
        nfd.prepare()
    assert "fleetbuild emit labels --remove --context test" in str(blocked.value.fix)
    ran = emit("--remove", "--context", "test")
    assert (ran.exit_code, ran.output) == (0, "Labels removed from 2 nodes.\n")
    assert ours(api, "a") == ours(api, "b") == {}
    assert not nfd.prepare()
    assert emit("--remove").output == "Labels removed from 0 nodes.\n"


def test_the_first_labelling_by_nfd_warns_about_earlier_labels(
    nfd: NfdLabeller, api: FakeApi, state: StateDir, emit: Callable[..., Ran]
) -> None:
    assert not nfd.prepare()
    state.save_result(Result(plan_digest=""), started="2026-01-01T00:00:00+00:00")
    told = nfd.prepare()
    assert "fleetbuild emit labels --remove --force-conflicts" in told
    api.set("a", {"fleetbuild.dev/release": "r0"}, by="kubectl-label")
    ran = emit("--remove")
    assert ran.exit_code == 4
    assert "set by kubectl-label" in ran.output
    assert emit("--remove", "--force-conflicts").exit_code == 0
    assert ours(api, "a") == {}
    nfd.after(SERVED)
    assert not nfd.prepare()


def test_labels_of_labels_sh_are_taken_over(
    nfd: NfdLabeller, api: FakeApi, client: Client, state: StateDir, emit: Callable[..., Ran]
) -> None:
    labels = {"fleetbuild.dev/release": RELEASE_ID, "fleetbuild.dev/class": "cpu-avx2"}
    api.add("a", "b")
    api.set("a", labels, by="kubectl-label")
    api.set("b", {"fleetbuild.dev/class": "cpu-avx2"}, by="nfd-master")  # a NodeFeatureRule
    off = labeller(client, state, nfd).before(["a"])["a"]
    assert off.state == "kept"
    assert "fleetbuild emit labels --apply --force-conflicts" in str(off.fix)
    for name, made in SERVED.items():
        note(state, name, made)
    assert emit("--apply", "--force-conflicts").exit_code == 0
    assert ours(api, "a")["release"] == RELEASE_ID
    assert {who for who, keys in api.nodes["a"].owners.items() if keys & labels.keys()} == {
        ("fleetbuild", "Apply")
    }
    assert api.nodes["b"].owners["nfd-master", "Update"] == {"fleetbuild.dev/class"}
    patches = len(api.patches())
    assert emit("--apply", "--force-conflicts").exit_code == 0
    assert len(api.patches()) == patches
    assert labeller(client, state, nfd).before(["a"])["a"].state == "labelled"
    assert "release" not in ours(api, "a")


def note(state: StateDir, name: str, made: Manifest) -> None:
    note_reply(state, name, made)


@pytest.mark.parametrize("args", [("--apply",), ("--out", "x")])
def test_remove_is_refused_with_other_options(
    emit: Callable[..., Ran], args: tuple[str, ...]
) -> None:
    ran = emit("--remove", *args)
    assert ran.exit_code == 2
    assert "does not go with --remove" in ran.output


def test_labels_are_recorded_for_each_context(
    api: FakeApi, tmp_path: Path, state: StateDir
) -> None:
    api.add("a", "b")
    for name, made in SERVED.items():
        note(state, name, made)
    fleet = fleetbuild.Fleet(state_dir=state.root, cluster=Cluster(api.kubeconfig(tmp_path)))
    label(fleet, plan=PLAN)
    assert state.api_labelled() == {"default": "test"}
    unlabel(fleet, plan=PLAN)
    assert state.api_labelled() == {}


def test_hardware_labels_that_a_deleted_rule_took_off_are_set_again(
    nfd_nodes: NfdNodes, api: FakeApi, state: StateDir, emit: Callable[..., Ran]
) -> None:
    assert nfd_nodes
    for name, made in SERVED.items():
        note(state, name, made)
    assert emit("--apply").exit_code == 0
    before = ours(api, "a")
    api.set("a", {"fleetbuild.dev/class": None, "fleetbuild.dev/isa": None}, by="nfd-master")
    assert ours(api, "a") != before
    assert emit("--apply").exit_code == 0
    assert ours(api, "a") == before


def test_a_plan_from_a_cluster_leaves_the_labels_of_an_install_over_ssh(
    nfd_nodes: NfdNodes, api: FakeApi, client: Client, state: StateDir, tmp_path: Path
) -> None:
    """Both users have the same domain; the second one has never seen the first one's nodes."""
    assert nfd_nodes
    ApiLabeller(targets_of_plan(PLAN), client, asked=True, state=state).after(SERVED)
    before = ours(api, "a")
    assert before["release"] == RELEASE_ID
    assert str(state.root) in api.nodes["a"].annotations["fleetbuild.dev/state"]
    cluster = Cluster(api.kubeconfig(tmp_path))
    second = fleetbuild.Fleet(state_dir=tmp_path / "second", cluster=cluster)
    plan = PLAN.model_copy(update={"facts_source": "cluster"})
    assert label(second, plan=plan).exit_code == 0
    assert ours(api, "a") == before
    removed = unlabel(second, plan=plan)
    assert removed.exit_code == 4
    assert str(state.root) in str(removed.nodes[0].reason)
    assert ours(api, "a") == before
