"""Calls of `Fleet` that the extension answers: emit, labels, nodes of a cluster."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from fleetbuild import Config, Fleet
from fleetbuild.errors import BlockedError
from fleetbuild.extensions.kubernetes.config import Kubernetes
from fleetbuild.models import Facts, Inventory, Login, Node, NodeResult, Result
from fleetbuild.models.config import Build
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.state import StateDir
from tests.factories.runs import group, plan

PLAN = with_digest(plan(group("avx", ["a", "b"])))
FLEET = Inventory(
    source="i.yml", nodes=tuple(Node(name=name, login=Login(host=name)) for name in "ab")
)


def test_manifests_cover_the_nodes_that_the_result_verified(tmp_path: Path) -> None:
    result = Result(
        plan_digest=PLAN.digest,
        nodes=(
            NodeResult(node="a", state="installed", release_id=PLAN.groups[0].release_id),
            NodeResult(node="b", state="verify_failed"),
        ),
    )
    fleet = Fleet(state_dir=tmp_path)
    given = fleet.emit("labels", plan=PLAN, result=result).files
    assert set(given) == {"labels.sh", "nodes.yaml"}
    labelled = [line for line in given["labels.sh"].splitlines() if "/release=" in line]
    assert ["node a " in line for line in labelled] == [True], given["labels.sh"]
    files = fleet.emit("nfd", plan=PLAN, result=result).files
    assert {name: "/release=" in text for name, text in files.items()} == {
        "a": True,
        "b": False,
        "nodefeaturerule.yaml": False,
    }
    unverified = fleet.emit("nfd", plan=PLAN).files
    assert not any("/release=" in text for text in unverified.values())
    affinity = fleet.emit("affinity", plan=PLAN, out=tmp_path / "out")
    assert set(affinity.files) == {"affinity.yaml"}
    assert {path.name: path.read_text() for path in affinity.paths} == affinity.files
    StateDir(tmp_path).save_result(result, started="2026-01-01T00:00:00+00:00")
    fleet.save_plan(PLAN)
    assert fleet.emit("labels").files == fleet.emit("labels", plan=PLAN).files


def test_who_sets_labels_comes_from_the_configuration_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release and install path still come from the last plan."""
    asked: list[tuple[str, str]] = []

    def run(_: object, __: object, config: Config, *___: object, **____: object) -> Result:
        asked.append((config.section(Kubernetes).labels, config.install.path))
        return Result(plan_digest="")

    monkeypatch.setattr("fleetbuild.apply.wiring.run_on_fleet", run)
    source = str(tmp_path / "hosts.yml")
    inventory = FLEET.model_copy(update={"source": source})
    planned = {"inventory": source, "install_path": "/srv", "labels": "files"}
    fleet = Fleet(inventory, state_dir=tmp_path / "state")
    fleet.save_plan(with_digest(PLAN.model_copy(update=planned)))
    fleet.rollback()
    (tmp_path / "fleetbuild.yml").write_text("kubernetes: {labels: api}\n")
    later = Fleet(inventory, state_dir=tmp_path / "state")
    later.rollback()
    later.verify()
    assert asked == [("files", "/srv"), ("api", "/srv"), ("api", "/srv")]


def test_nodes_of_a_cluster_are_planned_for_and_not_applied_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dict.fromkeys("ab", Facts())
    monkeypatch.setattr(
        "fleetbuild.extensions.kubernetes.read_fleet.read_fleet", lambda *_: (FLEET, facts)
    )
    monkeypatch.setattr(
        "fleetbuild.extensions.kubernetes.read_fleet.connect", lambda _: nullcontext()
    )
    config = Config(build=Build(image="python:3.12-bookworm"))
    fleet = Fleet.from_cluster(config=config, state_dir=tmp_path)
    assert fleet.inventory == FLEET
    assert fleet.probe() == facts
    for call in (fleet.verify, fleet.rollback, fleet.status, lambda: fleet.apply(PLAN)):
        with pytest.raises(BlockedError, match="SSH"):
            call()
