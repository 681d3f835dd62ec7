"""The captured fleet for torch: which group, toolkit, wheel, flags and libraries each node gets.

After a change that is meant, write the golden plans anew and read the difference:
    python tests/unit/planning/test_seed_fleet_torch.py && git diff tests/unit/planning
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning_fleets import drafted, package, planned

from fleetbuild.models import Facts
from fleetbuild.planning.wheels.draft import job_of
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.recipes import render_requirements, render_requires

FLEET = Path(__file__).parents[4] / "shared" / "captures" / "seed-fleet"
GOLDEN = Path(__file__).with_name("seed_fleet_torch.json")
KEPLER = "hsw-k40"


def golden(version: str, fleet: dict[str, Facts]) -> dict[str, Any]:
    """The plan of torch for these nodes, as far as it hangs on hardware and recipe."""
    torch = package("torch", version)
    plan = planned(fleet, packages=[torch])
    jobs = {wheel.groups[0]: job_of(wheel) for wheel in drafted(fleet, [torch]).wheels}
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


def found() -> dict[str, Any]:
    """The plans as they are now: of the newest torch for all, of an old one for Kepler."""
    names = sorted(folder.name for folder in FLEET.iterdir() if folder.is_dir())
    captures = load_captures(FLEET, names)
    fleet = {name: facts_of(dict(capture)) for name, capture in captures.items()}
    return {
        "torch 2.13.0": golden("2.13.0", fleet),
        "torch 2.0.1": golden("2.0.1", {KEPLER: fleet[KEPLER]}),
    }


@pytest.mark.skipif(not FLEET.is_dir(), reason="the captured fleet is not here")
def test_the_plans_for_torch_are_the_golden_ones() -> None:
    assert found() == json.loads(GOLDEN.read_text())


def test_the_golden_plans_say_what_matters_most() -> None:
    plan = json.loads(GOLDEN.read_text())["torch 2.13.0"]
    assert plan["blocked"][KEPLER][0] == (
        "SM 3.5 needs CUDA 11.8 or older; torch 2.13 needs CUDA 12.1 or newer."
    )
    ivy = plan["groups"]["sm86-avx-cp311"]
    assert ivy["environment"]["CXXFLAGS"] == "-O3 -march=x86-64-v2 -mavx"
    assert ivy["environment"]["USE_FBGEMM"] == "0"
    assert any("CXX_AVX2_FOUND FALSE" in line for line in ivy["levels"])


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(found(), indent=1, sort_keys=True) + "\n")
