"""A whole apply on nodes with other CPUs: built there or by a strong machine, verified, refused.

hnswlib is the package: its wheel for avx2 dies on Ivy Bridge as soon as it searches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild import Config, Fleet, Plan, Result
from fleetbuild.models.config import Build
from tests.lab import Lab, runnable

pytestmark = [
    pytest.mark.long,
    pytest.mark.fleet,
    pytest.mark.network,
    pytest.mark.skipif("avx2" not in runnable(), reason="this machine's CPU has no AVX2"),
]
PATIENCE = 300  # seconds for an answer: an emulated node takes its time on a busy machine
SEARCH = (
    "import hnswlib, numpy; index = hnswlib.Index('l2', 8); index.init_index(9); "
    "index.add_items(numpy.eye(8)); print(index.knn_query(numpy.eye(8), 1)[0].ravel().tolist())"
)
FOUND = str([0, 1, 2, 3, 4, 5, 6, 7])


@pytest.fixture(scope="module")
def nodes(make_foreign_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    fleet = {
        "ivy": {"cpu": "IvyBridge", "gpu": False},
        # Its cpuinfo says that it has AVX2, as on a machine whose hypervisor misleads.
        "forced": {"cpu": "IvyBridge", "hardware": "avx2", "gpu": False},
        "strong": {"hardware": "avx2", "gpu": False},
    }
    return make_foreign_lab({"nodes": fleet})


@pytest.fixture(scope="module")
def arm(make_foreign_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    return make_foreign_lab({"nodes": {"n1": {"cpu": "neoverse-n1"}}})


def apply(lab: Lab, state: Path, limit: str | None = None, **build: str) -> tuple[Plan, Result]:
    config = Config(build=Build(**build))
    fleet = Fleet(lab.inventory, config=config, state_dir=state, limit=limit, timeout=PATIENCE)
    plan = fleet.plan(["hnswlib==0.8.0"])
    return plan, fleet.apply(plan)


def outcomes(result: Result) -> dict[str, tuple[str, str]]:
    return {each.node: (each.state, each.reason or "") for each in result.nodes}


def search(lab: Lab, node: str) -> str:
    command = f'/opt/fleetbuild/current/bin/python -c "{SEARCH}"'
    done = lab.exec(node, command, user="fleet")
    return done.stdout.strip() or done.stderr


def test_a_wheel_from_a_strong_builder_works_on_an_ivy_bridge(nodes: Lab, tmp_path: Path) -> None:
    _, result = apply(nodes, tmp_path, "ivy:strong", builders="strong")
    built = {each.wheel_version: each.built_on for each in result.wheels}
    assert built == {"0.8.0+cpu.avx": "strong", "0.8.0+cpu.avx2": "strong"}
    assert outcomes(result) == {"ivy": ("installed", ""), "strong": ("installed", "")}
    assert search(nodes, "ivy") == FOUND


def test_an_ivy_bridge_builds_and_serves_its_own_wheel(nodes: Lab, tmp_path: Path) -> None:
    nodes.exec("ivy", "rm -rf /opt/fleetbuild", check=True)
    _, result = apply(nodes, tmp_path, "ivy")
    assert [(each.built_on, each.state) for each in result.wheels] == [("ivy", "built")]
    assert outcomes(result) == {"ivy": ("installed", "")}
    assert search(nodes, "ivy") == FOUND


def test_a_wheel_for_avx2_fails_its_verification_there_and_never_serves(
    nodes: Lab, tmp_path: Path
) -> None:
    plan, result = apply(nodes, tmp_path, "forced:strong", builders="strong")
    assert {group.target.isa for group in plan.groups} == {"avx2"}
    state, reason = outcomes(result)["forced"]
    assert state == "verify_failed"
    assert "Illegal instruction" in reason
    assert result.exit_code == 7
    assert nodes.exec("forced", "ls /opt/fleetbuild/current").returncode != 0


def test_a_neoverse_n1_builds_and_serves_its_own_wheel(arm: Lab, tmp_path: Path) -> None:
    plan, result = apply(arm, tmp_path)
    assert [group.name for group in plan.groups] == ["cpu-armv8.2-cp311"]
    assert [each.wheel_version for each in result.wheels] == ["0.8.0+cpu.armv8.2"]
    assert outcomes(result) == {"n1": ("installed", "")}
    assert search(arm, "n1") == FOUND
