"""Groups of Windows nodes, and how their wheels are built."""

from __future__ import annotations

import pytest

from fleetbuild.extensions.windows.build_script import _wheel_values as values_of
from fleetbuild.extensions.windows.facts import windows_facts
from fleetbuild.extensions.windows.show import group_lines, windows_warnings
from fleetbuild.models import Config
from tests.extensions.windows.captured import TORCH, capture, known, only, plan_of
from tests.factories.fleets import facts, node, package, planned

REFUSED = (
    "and CUDA 11.4 refuses newer ones: install Visual Studio 2019 or newer, or its Build Tools, "
    "with such a toolset"
)


def test_the_guides_kepler_machine_gets_cuda_11_4_and_an_msvc_that_it_accepts() -> None:
    group = only(plan_of("snb-k40c"))
    (wheel,) = group.wheels
    assert group.name == "sm35-avx-cp310-win"
    assert (wheel.given.wheel_version, wheel.given.cuda) == ("2.0.1+cu114.sm35.avx", "11.4")
    assert (group.toolset_below, group.to_supply) == ("14.30", ())
    environment = values_of(wheel)["Environment"]
    assert environment["TORCH_CUDA_ARCH_LIST"] == "3.5"
    assert environment["CXXFLAGS"] == "/arch:AVX"
    assert not any("march" in value for value in environment.values())
    assert values_of(wheel)["Patches"] == [
        "torch-flatbuffers-count.patch", "torch-msvc-environment.patch",
        "torch-windows-linkage.patch", "torch-windows-clz.patch",
    ]  # fmt: skip
    assert "@cuda@/bin/cudnn*64_*.dll" in values_of(wheel)["Bundled"]["torch/lib"]


def test_a_linux_wheel_gets_no_windows_patch() -> None:
    plan = planned({"linux": facts("avx")}, packages=TORCH)
    assert list(plan.wheels[0].patches) == ["torch-flatbuffers-count.patch"]


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        (
            {"msvc": ("14.38.33130",), "nvcc": ("11.4",), "git": ("2",), "cudnn": ("8",)},
            f"snb-k40c has no MSVC older than 14.30, {REFUSED}. It has 14.38.33130.",
        ),
        (
            {"msvc": ("14.29.30133",), "nvcc": ("11.4",), "cudnn": ("8",)},
            "snb-k40c has no git, which fetches sources and applies patches.",
        ),
        (
            {"msvc": ("14.29.30133",), "nvcc": ("11.4",), "git": ("2",)},
            "snb-k40c: cuDNN is not installed: unpack it into the folder of the CUDA toolkit.",
        ),
    ],
)
def test_what_a_build_by_hand_lacks_is_a_sentence(
    tools: dict[str, tuple[str, ...]], sentence: str
) -> None:
    group = only(plan_of(**{"snb-k40c": known("snb-k40c", toolchain=tools)}))
    assert group.to_supply == (sentence,)


def test_a_constraint_blocks_a_windows_node_as_any_other() -> None:
    plan = plan_of("adl-3080")
    assert plan.groups == ()
    assert "torch 2.0 is for Python 3.8 to 3.11" in plan.problems["adl-3080"].reason


def test_nodes_of_the_same_target_share_a_group() -> None:
    group = only(plan_of("snb-k40c", twin=known("snb-k40c")))
    assert group.nodes == ("snb-k40c", "twin")


def test_the_inventory_overrides_the_probe() -> None:
    plan = plan_of(w=known("snb-k40c"), nodes=[node("w", isa="x86-64-v2", sms=())])
    assert only(plan).name == "cpu-x86-64-v2-cp310-win"
    assert "CXXFLAGS" not in values_of(only(plan).wheels[0])["Environment"]


def test_openblas_has_to_be_named_by_hand() -> None:
    config = Config.model_validate({"build": {"blas": "openblas"}})
    group = only(plan_of("nhm-w3520", config=config))
    assert values_of(group.wheels[0])["Environment"]["BLAS"] == "OpenBLAS"
    assert "nhm-w3520: set OpenBLAS_HOME to the folder of OpenBLAS before the script runs." in (
        group.to_supply
    )


def test_a_recipe_that_says_nothing_about_windows_gives_no_script() -> None:
    group = only(plan_of("skl-6700hq", packages=[package("numpy", "2.1.0")]))
    assert group.wheels[0].problem == (
        "The recipe numpy does not say how numpy is built on Windows."
    )


def test_a_node_with_windows_on_arm_is_blocked_with_its_reason() -> None:
    plan = plan_of(arm=windows_facts(capture("adl-3080", uname="Windows 10.0.26100 ARM64")))
    assert plan.problems["arm"].reason == "Windows on ARM64 is not supported: only on AMD64."


@pytest.mark.parametrize(("wanted", "version"), [(None, "3.11"), ("3.12", "3.12")])
def test_the_fix_for_a_missing_python_is_a_command_of_windows(
    wanted: str | None, version: str
) -> None:
    found = known("skl-6700hq", pythons=())
    plan = plan_of(w=found, nodes=[node("w", python=wanted)])
    assert plan.problems["w"].reason.startswith("The node has no ")
    assert f"winget install Python.Python.{version}" in plan.problems["w"].fix


def test_the_lines_of_a_group_say_how_the_wheels_are_built() -> None:
    plan = plan_of("snb-k40c", "adl-3080")
    lines = "\n".join(group_lines(only(plan)))
    assert "sm35-avx-cp310-win: snb-k40c" in lines
    assert "compiler: MSVC older than 14.30" in lines
    assert "torch 2.0.1+cu114.sm35.avx: recipe torch, CUDA 11.4: CUDA 11.4 is installed" in lines
    assert windows_warnings(plan)[0].startswith("adl-3080: torch 2.0 is for Python 3.8 to 3.11")
