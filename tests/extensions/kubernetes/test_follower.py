"""Kubernetes follows runs: what it opens for each, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetbuild import Fleet
from fleetbuild.config import config_model
from fleetbuild.errors import KubeconfigError, UsageError
from fleetbuild.extensions.kubernetes.api import Cluster
from fleetbuild.models import Config, Inventory, Login, Node, Result
from fleetbuild.models.role_parameters import RemoveSpec
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.state import StateDir
from tests.extensions.kubernetes.api.test_cluster_pods import pod
from tests.factories.cluster_api import FakeApi
from tests.factories.fleets import facts
from tests.factories.plans import reused_plan


@pytest.mark.parametrize("labels", ["files", "api"])
def test_remove_asks_the_cluster_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: str
) -> None:
    def fake(_: Any, spec: RemoveSpec, *, follower: Any, **__: Any) -> Result:
        assert follower.in_use(["a"], spec.path) == {"a": {"r1": "The pod web/p mounts it."}}
        return Result(plan_digest="")

    monkeypatch.setattr("fleetbuild.apply.wiring.remove_releases", fake)
    with FakeApi().serving() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        api.add("a")
        api.pods = [pod("p", "a", "/opt/fleetbuild/releases/r1")]
        inventory = Inventory(source="i.yml", nodes=(Node(name="a", login=Login(host="a")),))
        config = config_model().model_validate({"kubernetes": {"labels": labels}})
        fleet = Fleet(inventory, config=config, state_dir=tmp_path / "state")
        if labels == "files":  # set by hand with `emit labels --apply`
            StateDir(tmp_path / "state").create().note_api_labels("default", "test")
        fleet.remove()
        assert not api.patches()


def test_a_cluster_that_is_gone_can_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr("fleetbuild.apply.wiring.probe_nodes", lambda *_, **__: {"a": facts("avx")})
    inventory = Inventory(source="i.yml", nodes=(Node(name="a", login=Login(host="a")),))
    fleet = Fleet(inventory, config=Config(), state_dir=tmp_path / "state")
    state = StateDir(tmp_path / "state").create()
    state.note_api_labels("default", "gone")
    with pytest.raises(KubeconfigError) as caught:
        fleet.remove()
    assert caught.value.fix.endswith(
        f"If that cluster is gone for good, first: rm {state.api_labels_file}"
    )


def test_an_unused_cluster_argument_is_refused(tmp_path: Path) -> None:
    inventory = Inventory(source="i.yml", nodes=(Node(name="a", login=Login(host="a")),))
    fleet = Fleet(inventory, state_dir=tmp_path, cluster=Cluster(context="x"))
    with pytest.raises(UsageError, match=r"kubernetes\.labels: files") as caught:
        fleet.apply(with_digest(reused_plan("a")))
    assert "--context" in caught.value.fix


def test_an_apply_of_a_plan_imports_no_recipes_and_no_client_of_a_cluster() -> None:
    program = (
        "import fleetbuild.apply.stages, fleetbuild.apply.wiring, sys\n"
        "import fleetbuild.extensions.kubernetes.follower\nprint(*sys.modules)"
    )
    line = [sys.executable, "-c", program]
    loaded = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    client = "fleetbuild.extensions.kubernetes.api.client"
    assert not {"fleetbuild.recipes", "jinja2", client} & set(loaded)
