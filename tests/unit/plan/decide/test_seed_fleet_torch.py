"""The captured fleet for torch: which group, toolkit, wheel, flags and libraries each node gets.

After a change that is meant, write the golden plans again and read the difference:
    python -m pytest tests/unit/plan/decide/test_seed_fleet_torch.py --update-golden
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.models import Facts
from fleetbuild.recipes import render_requirements, render_requires
from tests.factories.data import DATA, seed_fleet
from tests.factories.fleets import drafted, package, planned

KEPLER = "hsw-k40"


def summary(version: str, fleet: dict[str, Facts]) -> dict[str, Any]:
    """The plan of torch for these nodes, as far as it hangs on hardware and recipe."""
    torch = package("torch", version)
    plan = planned(fleet, packages=[torch])
    jobs = {wheel.groups[0]: wheel.recipe_input for wheel in drafted(fleet, [torch]).wheels}
    groups = {
        group.name: {
            "nodes": list(group.nodes),
            "wheel": group.wheels[0].wheel_version,
            "evidence": group.wheels[0].evidence,
            "jobs": group.wheels[0].jobs,
            "environment": group.wheels[0].environment,
            "settings": group.wheels[0].config_settings,
            "levels": group.wheels[0].files["levels.cmake"].splitlines(),
            "patches": list(group.wheels[0].patches),
            "builder": group.wheels[0].requires.model_dump(mode="json"),
            "build_needs": list(render_requirements(torch.recipe, jobs[group.name])),
            "needs": list(render_requires(torch.recipe, jobs[group.name]) or ()),
        }
        for group in plan.groups
    }
    blocked = {name: [node.reason, node.fix] for name, node in plan.nodes.items() if node.reason}
    return {"groups": groups, "blocked": blocked, "warnings": list(plan.warnings)}


@pytest.fixture(scope="module")
def plans() -> dict[str, Any]:
    """The plans as they are now: of the newest torch for all, of an old one for Kepler."""
    fleet = seed_fleet()
    return {
        "torch 2.13.0": summary("2.13.0", fleet),
        "torch 2.0.1": summary("2.0.1", {KEPLER: fleet[KEPLER]}),
    }


def test_the_plans_for_torch_are_the_golden_ones(
    plans: dict[str, Any], golden: Callable[[Path, Any], None]
) -> None:
    golden(DATA / "seed-fleet-torch.json", plans)
