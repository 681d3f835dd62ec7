"""Wheels for named targets, built on one node that is of none of these kinds and has no CUDA.

The CUDA toolkit comes from NVIDIA's wheels; pip and uv install by the lines of the exported table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.audit import audit_wheel
from tests.factories.command_line import run_fleetbuild
from tests.factories.environments import installed_by, output_of
from tests.lab import Lab

SOURCE = Path(__file__).parents[1] / "cuda_extension"
RECIPE = """
name: cuda-saxpy
packages: [cuda-saxpy]
rungs: [x86-64, x86-64-v2, avx, avx2]
cuda: true
toolkit_wheels: []
environment:
  TORCH_CUDA_ARCH_LIST: "{{ sms | join(';') }}"
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    return make_lab({"nodes": {"builder": {"hardware": "avx2", "gpu": False}}})


def run(*words: str | Path, here: Path, code: int = 0) -> str:
    done = run_fleetbuild(*words, here=here, code=code)
    return " ".join(done.stdout.split())


def catalogue(
    lab: Lab, here: Path, packages: list[str], targets: list[str], policy: str = "targeted"
) -> list[dict[str, Any]]:
    """Plan, build and publish; the rows of the table."""
    (here / "recipes").mkdir()
    (here / "recipes/cuda-saxpy.yml").write_text(RECIPE)
    config = here / "fleetbuild.yml"
    wanted = {"packages": packages, "targets": targets, "build": {"policy": policy}}
    config.write_text(json.dumps(wanted))
    said = run("plan", lab.inventory, "--config", config, here=here)
    assert f"for {len(targets)} targets. Nothing is installed." in said
    plan = json.loads((here / ".fleetbuild/plan.json").read_text())
    ours = [wheel for group in plan["groups"] for wheel in group["wheels"] if wheel["cuda"]]
    assert {wheel["requires"]["cuda"].partition(" ")[2] for wheel in ours} == {
        "(from NVIDIA's wheels)"
    }
    assert all(file["sha256"] for wheel in ours for file in wheel["toolkit_wheels"])
    assert not any(wheel["requires"]["to_supply"] for wheel in ours)
    said = run("apply", here=here)
    assert "Next: fleetbuild store export DIR" in said
    assert lab.exec("builder", "ls /opt/fleetbuild").returncode != 0
    assert " 0 wheels to build" in run("plan", lab.inventory, "--config", config, here=here)
    run("store", "push", here / "www", "--config", config, here=here)
    rows: list[dict[str, Any]] = json.loads((here / "www/variants.json").read_text())["variants"]
    assert {row["group"] for row in rows} == set(targets)
    return rows


def assert_code(here: Path, rows: list[dict[str, Any]]) -> None:
    """Each wheel holds machine code for its target's SMs, and for no other."""
    for row in rows:
        audit = audit_wheel(here / "www" / row["file"])
        sms = tuple(row["target"]["sms"])
        assert (audit.sms, audit.ptx) == (sms, ()), row["file"]
        assert row["driver"] if sms else row["driver"] is None
        assert set(audit.features) <= set(row["target"]["features"])


def install(here: Path, program: str, group: str, code: str) -> str:
    """What this code prints where the table's line for the group was run, and nothing else."""
    text = (here / "www/variants.md").read_text()
    (line,) = re.findall(rf"^{program} .*HERE/{re.escape(group)}/simple/ .*$", text, re.MULTILINE)
    line = line.replace("HERE", (here / "www").as_uri())
    return output_of(installed_by(line, here / f"{program}-{group}"), code)


def test_gpu_code_is_built_without_an_installed_cuda(lab: Lab, tmp_path: Path) -> None:
    targets = ["sm86-x86-64-v2-cp311", "sm90-avx-cp311"]
    rows = catalogue(lab, tmp_path, [f"cuda-saxpy @ {SOURCE}"], targets)
    assert {row["target"]["sms"][0] for row in rows} == {"8.6", "9.0"}
    assert_code(tmp_path, rows)
    if sys.version_info[:2] == (3, 11):  # as the nodes' Python: elsewhere the wheel does not fit
        said = install(tmp_path, "pip", targets[0], "import cuda_saxpy; print('loaded')")
        assert said == "loaded"


@pytest.mark.long
@pytest.mark.network
def test_torch_scatter_is_built_for_each_gpu_without_an_installed_cuda(
    lab: Lab, tmp_path: Path
) -> None:
    """Against the published torch for CUDA 13, which is some gigabytes with its libraries."""
    targets = ["sm86-avx2-cp311", "sm90-avx2-cp311"]
    packages = ["torch==2.13.0", "torch-scatter==2.1.2"]
    rows = catalogue(lab, tmp_path, packages, targets, policy="auto")
    ours = [row for row in rows if row["package"] == "torch-scatter"]
    assert {row["target"]["sms"][0] for row in ours} == {"8.6", "9.0"}
    assert_code(tmp_path, ours)


@pytest.mark.long
def test_a_catalogue_of_twelve_targets_is_installed_by_pip_and_uv(lab: Lab, tmp_path: Path) -> None:
    rungs = ("x86-64", "x86-64-v2", "avx", "avx2")
    targets = [f"{sm}-{rung}-cp311" for sm in ("sm75", "sm86", "sm90") for rung in rungs]
    rows = catalogue(lab, tmp_path, ["hnswlib==0.8.0", f"cuda-saxpy @ {SOURCE}"], targets)
    assert len(rows) == 24
    assert len({row["sha256"] for row in rows}) == 16  # hnswlib has no GPU code
    assert_code(tmp_path, rows)
    check = (
        "import cuda_saxpy, hnswlib, numpy; i = hnswlib.Index('l2', 4); i.init_index(9); "
        "i.add_items(numpy.eye(4)); print(i.knn_query(numpy.eye(4), k=1)[0].ravel())"
    )
    for program in ("pip", "uv"):
        for rung in rungs:
            assert install(tmp_path, program, f"sm86-{rung}-cp311", check) == "[0 1 2 3]"
