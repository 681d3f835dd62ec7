"""What a plan holds for Kubernetes: the names of Nodes, and which labels they get."""

from __future__ import annotations

import pytest

from fleetbuild.config import config_model
from fleetbuild.errors import ConfigError
from tests.factories.fleets import facts, node, planned


@pytest.mark.parametrize("packages", [True, False])
def test_a_plan_keeps_whether_packages_have_labels(packages):
    config = config_model().model_validate({"kubernetes": {"package_labels": packages}})
    made = planned({"a": facts()}, config=config)
    assert (made.package_labels, made.labels, made.label_domain) == (
        packages, "files", "fleetbuild.dev"
    )  # fmt: skip


def test_node_names_in_the_cluster_come_from_the_template():
    plan = planned(
        {"a": facts(), "b": facts()},
        nodes=[node("a", variables={"kubernetes_node": "worker-1"}), node("b")],
    )
    assert plan.nodes["a"].kubernetes_node == "worker-1"
    assert plan.nodes["b"].kubernetes_node == "b"


def test_a_node_name_template_without_default_is_an_error():
    config = config_model().model_validate({"kubernetes": {"node_name": "{{ nobody }}"}})
    with pytest.raises(ConfigError, match="cannot be rendered for n"):
        planned({"n": facts()}, config=config)
