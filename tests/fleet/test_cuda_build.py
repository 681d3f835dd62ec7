"""A CUDA extension through the whole of fleetbuild, on nodes that have nvcc and show a GPU.

Their GPUs are what their nvidia-smi says, so the code is compiled, audited and installed, and what
runs on the GPU fails as it does where the driver is gone.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.audit import audit_wheel
from tests.factories.command_line import run_fleetbuild
from tests.lab import Lab
from tests.lab.fleet import HARDWARE
from tests.toolkit import VERSION, cuda_toolkit

SOURCE = Path(__file__).parents[1] / "cuda_extension"
GPUS = {"ampere": ("NVIDIA GeForce RTX 3060", "8.6"), "turing": ("Tesla T4", "7.5")}
RECIPE = """
name: cuda-saxpy
packages: [cuda-saxpy]
rungs: [x86-64-v2, avx]
cuda: true
environment:
  TORCH_CUDA_ARCH_LIST: "{{ sms | join(';') }}"
"""
COMPUTES = """
checks:
  - |
    # It computes on the GPU
    import cuda_saxpy
    assert cuda_saxpy.saxpy(2, [1, 2], [3, 4]) == [5, 8]
"""


@pytest.fixture(scope="module")
def lab(
    make_lab: Callable[[Mapping[str, Any]], Lab], tmp_path_factory: pytest.TempPathFactory
) -> Lab:
    toolkit = f"{cuda_toolkit()}:/usr/local/cuda-{VERSION}:ro"
    nodes = {}
    for name, (product, sm) in GPUS.items():
        shown = shutil.copytree(HARDWARE / "avx", tmp_path_factory.mktemp(name) / name)
        (shown / "nvidia-smi").write_text(
            "index, name, compute_cap, driver_version, memory.total [MiB], uuid\n"
            f"0, {product}, {sm}, 580.82.07, 12288 MiB, GPU-{name}\n"
        )
        nodes[name] = {"hardware": str(shown), "volumes": [toolkit]}
    return make_lab({"nodes": nodes})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fleetbuild.yml and the user's own recipe lie."""
    return tmp_path_factory.mktemp("cuda")


def apply(lab: Lab, here: Path, recipe: str, release: str) -> subprocess.CompletedProcess[str]:
    (here / "recipes").mkdir(exist_ok=True)
    (here / "recipes/cuda-saxpy.yml").write_text(recipe)
    config = here / "fleetbuild.yml"
    config.write_text(f"release: {release}\npackages: ['cuda-saxpy @ {SOURCE}']\n")
    words = ("apply", lab.inventory, "--config", config, "--yes")
    return run_fleetbuild(*words, here=here, code=None)


def test_each_group_gets_code_for_its_own_gpu_only(lab: Lab, here: Path) -> None:
    done = apply(lab, here, RECIPE, "default")
    assert done.returncode == 0, done.stdout + done.stderr
    wheels = {wheel.name: audit_wheel(wheel) for wheel in (here / ".fleetbuild").rglob("*.whl")}
    ours = {name: audit for name, audit in wheels.items() if name.startswith("cuda_saxpy")}
    assert {audit.sms for audit in ours.values()} == {("8.6",), ("7.5",)}
    assert {audit.ptx for audit in ours.values()} == {()}
    assert {str(audit.version).rpartition(".")[0] for audit in ours.values()} == {
        "1.0+cu130.sm86",
        "1.0+cu130.sm75",
    }
    said = lab.exec("ampere", "/opt/fleetbuild/current/bin/fleetbuild-sanity", check=True).stdout
    assert "made for  sm86-avx-cp311: avx, SM 8.6" in said
    assert "GPU 0     NVIDIA GeForce RTX 3060, SM 8.6, driver 580.82.07" in said
    assert "ok        import cuda_saxpy" in said


def test_a_gpu_that_does_not_answer_is_explained(lab: Lab, here: Path) -> None:
    done = apply(lab, here, RECIPE + COMPUTES, "computes")
    assert done.returncode == 7, done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    reason = "ampere, turing has no NVIDIA driver, or its driver is too old"
    assert f"`It computes on the GPU`: {reason}" in said, said
    assert "install or update the driver" in said
