"""The worked scenarios of docs/scenarios.md: the planner does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.models import Config, Facts, Gpu, Plan
from fleetbuild.plan.decide.packages import parse_package
from fleetbuild.plan.explain import explain_node
from tests.factories.fleets import facts, package, planned, python

HERE = Path(__file__).parent
PAGE = HERE.parents[3] / "docs" / "scenarios.md"
SCENARIOS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "scenarios.yml").read_text())


def node_of(row: dict[str, Any]) -> Facts:
    """A node in a few words."""
    words = dict(row)
    sms, gcc = tuple(words.pop("sms", ())), words.pop("gcc", "12.2.0")
    version = words.pop("python", "3.11.2")
    toolchain = {"gcc": (gcc,), "g++": (gcc,), "nvcc": tuple(words.pop("nvcc", ()))}
    return facts(
        words.pop("rung"),
        sms=sms,
        gpus=tuple(Gpu(name="a GPU", sm=sm) for sm in sms),
        pythons=(python(version),),
        toolchain={name: versions for name, versions in toolchain.items() if versions},
        **words,
    )


def plan_of(scenario: dict[str, Any]) -> tuple[Plan, dict[str, Facts]]:
    fleet = {name: node_of(row) for name, row in scenario["nodes"].items()}
    specs = [parse_package(text) for text in scenario["packages"]]
    packages = [package(spec.name, spec.version) for spec in specs]
    config = Config.model_validate(scenario.get("config", {}))
    return planned(fleet, packages=packages, config=config), fleet


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_plan_matches_its_scenario(name: str) -> None:
    scenario = SCENARIOS[name]
    plan, fleet = plan_of(scenario)
    groups = {group.name: group for group in plan.groups}
    found = {
        name: [f"{wheel.package}-{wheel.wheel_version}" for wheel in group.wheels]
        for name, group in groups.items()
    }
    assert found == scenario["wheels"]
    for group, variables in scenario.get("sets", {}).items():
        environment = groups[group].wheels[0].environment
        assert {key: environment.get(key) for key in variables} == variables
    for group, jobs in scenario.get("jobs", {}).items():
        assert groups[group].wheels[0].jobs == jobs
    for node, said in scenario.get("says", {}).items():
        assert said in " ".join(explain_node(plan, fleet[node], node))
    for node in plan.nodes.values():
        assert node.state != "blocked" or (node.reason and node.fix)


def test_the_page_and_the_plans_name_the_same_wheels() -> None:
    told = set(re.findall(r"\b[a-z]+-\d[\d.]*\+[a-z0-9.]+[a-z0-9]", PAGE.read_text()))
    made = {
        wheel
        for scenario in SCENARIOS.values()
        for wheels in scenario["wheels"].values()
        for wheel in wheels
    }
    assert told == made
