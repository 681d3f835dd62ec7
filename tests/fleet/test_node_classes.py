"""Real nodes, read over SSH: their rules, labels and pods' selectors say one thing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import fleetbuild
from fleetbuild.probe.captures import load_captures
from tests.factories.nfd_master import labels_of
from tests.factories.nfd_worker import report_of_capture
from tests.lab import Lab

pytestmark = [pytest.mark.fleet]
CLASS = "fleetbuild.dev/class"


def test_lab_nodes_get_the_hardware_class_of_their_group(lab: Lab, tmp_path: Path) -> None:
    fleet = fleetbuild.Fleet(lab.inventory, state_dir=tmp_path)
    facts = fleet.probe(save=tmp_path / "captures")
    plan = fleet.plan(["hnswlib==0.8.0"], facts=facts)
    planned = {name: group for group in plan.groups for name in group.nodes}
    assert set(planned) == {node.name for node in fleet.inventory.nodes}
    assert len(planned) == 6

    rule = yaml.safe_load(fleet.emit("nfd", plan=plan).files["nodefeaturerule.yaml"])
    by_rule = {}
    for name, capture in load_captures(tmp_path / "captures", planned).items():
        known = facts[name]
        features = report_of_capture(capture, known.arch, known.features)
        by_rule[name] = labels_of([rule], features)
    written = yaml.safe_load_all(fleet.emit("labels", plan=plan).files["nodes.yaml"])
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in written}
    assert nodes == by_rule

    affinity = fleet.emit("affinity", plan=plan).files["affinity.yaml"]
    pods = [pod for pod in yaml.safe_load_all(affinity) if pod and "nodeSelector" in pod]
    selected = [
        {name for name, labels in nodes.items() if labels[CLASS] == pod["nodeSelector"][CLASS]}
        for pod in pods
    ]
    groups = sorted(plan.groups, key=lambda group: group.name)
    assert selected == [set(group.nodes) for group in groups]
