"""The captured fleet for torch 2.13.0: which group, toolkit and wheel each node gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning_fleets import package, planned

from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.parse import facts_of

FLEET = Path(__file__).parents[4] / "shared" / "captures" / "seed-fleet"
pytestmark = pytest.mark.skipif(not FLEET.is_dir(), reason="the captured fleet is not here")

GOLDEN = {
    "cpu-armv8.2-cp311": (["g2"], "2.13.0+cpu.armv8.2", None),
    "cpu-armv8.4sve-cp311": (["g3"], "2.13.0+cpu.armv8.4sve", None),
    "cpu-avx2-cp311": (["hsw-nodriver"], "2.13.0+cpu.avx2", None),
    "cpu-avx512-cp311": (["clx-cpu"], "2.13.0+cpu.avx512", None),
    "sm75-avx512-cp311": (["skx-t4"], "2.13.0+cu126.sm75.avx512", "released"),
    "sm75.sm80-avx512-cp311": (
        ["clx-a100-t4"], "2.13.0+cu126.sm75.sm80.avx512", "released"
    ),
    "sm86-avx-cp311": (["e5v2-a", "e5v2-b"], "2.13.0+cu124.sm86.avx", "buildable"),
    "sm86-avx2-cp311": (["hsw-3090", "zen3-a40"], "2.13.0+cu124.sm86.avx2", "buildable"),
    "sm89-avx2-cp311": (["zen3-l40s"], "2.13.0+cu126.sm89.avx2", "released"),
    "sm90-avx512-cp311": (["skx-h100"], "2.13.0+cu130.sm90.avx512", "released"),
}  # fmt: skip


def test_the_plan_for_torch_is_the_golden_one() -> None:
    names = sorted(folder.name for folder in FLEET.iterdir() if folder.is_dir())
    captures = load_captures(FLEET, names)
    facts = {name: facts_of(capture) for name, capture in captures.items()}
    plan = planned(facts, packages=[package("torch", "2.13.0")])
    found = {
        group.name: (list(group.nodes), group.wheels[0].wheel_version, group.wheels[0].evidence)
        for group in plan.groups
    }
    assert found == GOLDEN
    blocked = plan.nodes["hsw-k40"]
    assert blocked.state == "blocked"
    assert blocked.reason == "SM 3.5 needs CUDA 11.8 or older; torch 2.13 needs CUDA 12.1 or newer."
    assert "torch 2.0.1 with CUDA 11.7 or 11.8" in (blocked.fix or "")
    ivy = next(group for group in plan.groups if group.name == "sm86-avx-cp311").wheels[0]
    assert ivy.environment["USE_FBGEMM"] == "0"
    assert "CXX_AVX2_FOUND FALSE" in ivy.files["levels.cmake"]
