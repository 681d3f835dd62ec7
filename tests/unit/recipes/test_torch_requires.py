"""What the torch recipe says that torch needs, beside what the METADATA of its own wheels says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Target, TargetLibc
from fleetbuild.recipes import RecipeInput, find_recipe, render_environment, render_requires
from fleetbuild.toolchains.pytorch import TORCHES, find_torch

FACTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("torch_requires.yml").read_text())
OURS = {"numpy"}  # torch works without it, and hardly anybody does
# The recipe builds without these: CMake's default asks the machine that builds.
WITHOUT = {"cusparselt": "USE_CUSPARSELT", "cufile": "USE_CUFILE", "nvshmem": "USE_NVSHMEM"}
PARTS = {"cuda-cupti": "cupti", "cuda-nvrtc": "nvrtc", "cuda-runtime": "cudart"}


def job_of(version: str, *, arch: str = "x86_64", sms: tuple[str, ...] = ("8.0",)) -> RecipeInput:
    """A build as PyTorch's own: with the CUDA of the wheel on PyPI, for its Python."""
    rung = RUNGS["avx2" if arch == "x86_64" else "armv8.2"]
    python = re.search(r"cp\d+", FACTS[version]["file"])
    torch = find_torch(version)
    assert python is not None
    assert torch is not None
    target = Target(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=sms,
        python=python[0],
        libc=TargetLibc(family="glibc", floor="2.28"),
    )
    return RecipeInput(
        package="torch", version=version, target=target, cuda=torch.pypi if sms else None
    )


def wanted(lines: list[str] | tuple[str, ...], python: str, machine: str) -> dict[str, str]:
    """Name to versions, of what a node with this Python is asked for."""
    here = {"python_version": f"3.{python.removeprefix('cp3')}", "platform_system": "Linux",
            "platform_machine": machine}  # fmt: skip
    found = (Requirement(line) for line in lines)
    return {
        each.name: str(each.specifier)
        for each in found
        if each.marker is None or each.marker.evaluate(here)
    }


def recorded(version: str, machine: str) -> dict[str, str]:
    python = job_of(version).target.python
    return wanted(FACTS[version]["requires"], python, machine)


def rendered(job: RecipeInput) -> dict[str, str]:
    lines = render_requires(find_recipe("torch"), job) or ()
    return wanted(lines, job.target.python, job.target.arch)


def _nvidias(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(("nvidia-", "cuda-toolkit"))}


def test_every_torch_from_2_0_on_is_compared() -> None:
    minors = {name for name in TORCHES if name.startswith("2.")}
    assert {version.rpartition(".")[0] for version in FACTS} == minors


@pytest.mark.parametrize("version", FACTS)
def test_torch_requires_the_same_as_its_published_wheels(version: str) -> None:
    ours, theirs = rendered(job_of(version)), recorded(version, "x86_64")
    plain = {name: bounds for name, bounds in ours.items() if name not in _nvidias({*ours})}
    assert {name: plain[name] for name in plain.keys() - OURS} == theirs


@pytest.mark.parametrize("version", [version for version in FACTS if version >= "2.7"])
def test_triton_for_arm_comes_with_torch_2_11(version: str) -> None:
    ours, theirs = rendered(job_of(version, arch="aarch64")), recorded(version, "aarch64")
    assert ours.get("triton") == theirs.get("triton")


@pytest.mark.parametrize("version", FACTS)
def test_nvidias_libraries_are_the_same_as_of_published_wheels(version: str) -> None:
    job, facts = job_of(version), FACTS[version]
    lines = render_requires(find_recipe("torch"), job) or ()
    parts = {part for line in lines for part in Requirement(line).extras}
    named = {re.sub(r"-cu\d\d$", "", Requirement(line).name) for line in lines}
    have = parts | {name.removeprefix("nvidia-") for name in named}
    theirs = {PARTS.get(name, name) for name in (*facts["nvidia"], *facts.get("cuda-toolkit", ()))}
    have = {PARTS.get(name, name) for name in have}
    missing = theirs - have
    assert missing <= WITHOUT.keys()
    environment = render_environment(find_recipe("torch"), job)
    assert all(environment[WITHOUT[name]] == "0" for name in missing)


def test_a_cpu_torch_and_one_for_kepler_have_no_triton() -> None:
    assert "triton" not in rendered(job_of("2.13.0", sms=()))
    assert "triton" not in rendered(job_of("2.0.1", sms=("3.5",)))
    assert "triton" in rendered(job_of("2.0.1", sms=("3.5", "7.0")))


def test_an_unknown_torch_gets_the_newest_known_triton() -> None:
    job = job_of("2.15.0").model_copy(update={"version": "2.16.0"})
    assert rendered(job)["triton"] == ""
