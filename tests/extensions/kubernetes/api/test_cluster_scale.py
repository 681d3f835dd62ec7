"""Two thousand Nodes: the requests to the API server, and what people read."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleetbuild
from fleetbuild.apply.serving import note_reply
from fleetbuild.cli.show.status import status_ending
from fleetbuild.extensions.kubernetes.api import Cluster
from fleetbuild.extensions.kubernetes.cluster_labels import label
from fleetbuild.extensions.kubernetes.show import labelled_lines
from fleetbuild.models import Config, Inventory, Login, Node
from fleetbuild.models.serving import as_planned
from fleetbuild.state import StateDir
from tests.factories.cluster_api import FakeApi
from tests.factories.plans import reused_plan

MANY = 120
NAMES = [f"n{number}.k8s.lab" for number in range(1, MANY + 1)]
PLAN = reused_plan(*NAMES)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = StateDir(tmp_path / "state").create()
    fleetbuild.save_plan(PLAN, made.plan_file)
    for name, manifest in as_planned(PLAN, NAMES).items():
        assert manifest
        note_reply(made, name, manifest)
    return made


def test_labelling_again_reads_once_and_patches_nothing(
    api: FakeApi, tmp_path: Path, state: StateDir
) -> None:
    api.add(*NAMES)
    fleet = fleetbuild.Fleet(state_dir=state.root, cluster=Cluster(api.kubeconfig(tmp_path)))

    def labelled() -> tuple[list[str], int, int]:
        before = len(api.asked)
        done = label(fleet, plan=PLAN)
        asked = [each.verb for each in api.asked[before:]]
        return labelled_lines(done), asked.count("GET"), asked.count("PATCH")

    assert labelled() == ([f"{MANY} nodes: {MANY} labelled."], 1, MANY + 1)  # asked whether we may
    assert labelled() == ([f"{MANY} nodes: {MANY} labelled before."], 1, 0)
    api.set(NAMES[7], {"fleetbuild.dev/isa": None}, by="someone")  # type: ignore[dict-item]
    assert labelled() == ([f"{MANY} nodes: 1 labelled, {MANY - 1} labelled before."], 1, 2)


def test_a_problem_of_many_nodes_is_reported_once(
    api: FakeApi, tmp_path: Path, state: StateDir
) -> None:
    api.add(*NAMES[:-20], labels={"fleetbuild.dev/release": "r0"}, by="kubectl-label")
    nodes = tuple(Node(name=name, login=Login(host=name)) for name in NAMES)
    fleet = fleetbuild.Fleet(
        Inventory(source="i.yml", nodes=nodes), config=Config(), state_dir=state.root,
        cluster=Cluster(api.kubeconfig(tmp_path)),
    )  # fmt: skip
    done = label(fleet, plan=PLAN)
    lines = labelled_lines(done)
    assert lines[0].startswith(f"labelled by others: n[1-{MANY - 20}].k8s.lab: ")
    assert lines[2].startswith(f"not in the cluster: n[{MANY - 19}-{MANY}].k8s.lab: ")
    assert lines[4:] == [f"{MANY} nodes: 20 not in the cluster, {MANY - 20} labelled by others."]
    found = fleet.status(offline=True)
    ending = status_ending(found)
    assert ending[1].startswith(f"wrong labels: n[1-{MANY - 20}].k8s.lab: ")
    assert ending[2] == "  fix: fleetbuild emit labels --apply"
    assert f"{MANY} nodes, {MANY} with a release, {MANY - 20} with wrong labels" in ending[-1]
