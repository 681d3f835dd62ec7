"""Which labels a plan makes of a release, and the feature files that NFD reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.apply.context import Progress
from fleetbuild.apply.wave import manifest
from fleetbuild.config import config_model
from fleetbuild.extensions.kubernetes.labels.apply import Labelling
from fleetbuild.extensions.kubernetes.labels.labeller import (
    LabelTargets,
    label_targets,
    targets_of_plan,
)
from fleetbuild.extensions.kubernetes.labels.nfd_labeller import NfdLabeller
from fleetbuild.extensions.kubernetes.labels.node_labels import node_labels
from fleetbuild.extensions.kubernetes.labels.release_labels import is_release_label
from fleetbuild.extensions.kubernetes.manifests.render import render_labels
from fleetbuild.models import (
    Inventory,
    Login,
    Manifest,
    ManifestWheel,
    Node,
)  # fmt: skip
from fleetbuild.state import StateDir
from tests.factories.fleets import facts
from tests.factories.followers import Told
from tests.factories.runs import FakeFleet, FakeStore, ended, event, plan
from tests.unit.apply.test_labels import AVX, OLD, PLAN, apply


def test_a_manifest_makes_the_labels_of_its_plan(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    nodes = {name: facts("avx", release={"default": OLD}) for name in AVX.nodes}
    fleet = FakeFleet(facts=nodes, store=FakeStore(tmp_path / "store"))
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
    config = config_model().model_validate(
        {"kubernetes": {"node_name": "n-{{ inventory_hostname }}"}}
    )
    inventory = Inventory(source="i", nodes=tuple(nodes))
    known = PLAN.nodes["avx-1"].model_copy(update={"kubernetes_node": "k"})
    made = PLAN.model_copy(update={"nodes": {**PLAN.nodes, "avx-1": known}})
    names = label_targets(inventory, config, made)
    assert (names.in_cluster("avx-1"), names.in_cluster("new")) == ("k", "n-new")
    assert label_targets(inventory, config, None).in_cluster("avx-1") == "n-avx-1"
    other = config.model_copy(update={"release": "staging"})
    assert not label_targets(inventory, other, made).hardware


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
