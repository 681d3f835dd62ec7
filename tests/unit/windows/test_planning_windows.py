"""Windows nodes in a plan: groups of their own, planned only, beside a fleet that is served."""

from __future__ import annotations

import pytest

from fleetbuild.models import PLANNED_ONLY, Config, Facts, Plan, WindowsGroup
from fleetbuild.plan.document.serialize import dump_plan, read_plan
from fleetbuild.plan.explain import explain_group, explain_node
from tests.factories.data import windows_nodes
from tests.factories.fleets import facts, node, package, planned

REFUSED = (
    "and CUDA 11.4 refuses newer ones: install Visual Studio 2019 or newer, or its Build Tools, "
    "with such a toolset"
)
TORCH = [package("torch", "2.0.1")]


def plan_of(*names: str, packages=TORCH, config: Config | None = None, **nodes: Facts) -> Plan:
    known = {name: windows_nodes()[name] for name in names} | nodes
    return planned(known, packages=packages, config=config)


def only(plan: Plan) -> WindowsGroup:
    (group,) = plan.windows
    return group


def test_a_windows_node_is_planned_only_and_the_rest_is_served() -> None:
    plan = plan_of("snb-k40c", packages=[package()], linux=facts())
    windows, linux = plan.nodes["snb-k40c"], plan.nodes["linux"]
    assert (windows.state, windows.reason, windows.group) == ("blocked", PLANNED_ONLY, None)
    assert windows.planned_only == "cpu-avx-cp310-win"
    assert "fleetbuild emit windows" in (windows.fix or "")
    assert (linux.state, linux.group) == ("ok", "cpu-avx2-cp311")
    assert [group.name for group in plan.groups] == ["cpu-avx2-cp311"]
    assert plan.changes == {"cpu-avx2-cp311": ("linux",)}
    assert set(plan.fingerprint) == {"linux"}
    assert plan.exit_code == 4
    assert windows.hardware is None


def test_the_plan_keeps_its_windows_groups_when_it_is_saved() -> None:
    plan = plan_of("snb-k40c")
    assert read_plan(dump_plan(plan), "plan.json").windows == plan.windows


def test_the_guides_kepler_machine_gets_cuda_11_4_and_an_msvc_that_it_accepts() -> None:
    group = only(plan_of("snb-k40c"))
    (wheel,) = group.wheels
    assert group.name == "sm35-avx-cp310-win"
    assert (wheel.wheel_version, wheel.cuda) == ("2.0.1+cu114.sm35.avx", "11.4")
    assert (group.toolset_below, group.to_supply) == ("14.30", ())
    assert wheel.environment["TORCH_CUDA_ARCH_LIST"] == "3.5"
    assert wheel.environment["CXXFLAGS"] == "/arch:AVX"
    assert not any("march" in value for value in wheel.environment.values())
    assert list(wheel.patches) == [
        "torch-flatbuffers-count.patch", "torch-msvc-environment.patch",
        "torch-windows-linkage.patch", "torch-windows-clz.patch",
    ]  # fmt: skip
    assert "C_AVX2_FOUND FALSE" in wheel.files["levels.cmake"]
    assert "@cuda@/bin/cudnn*64_*.dll" in wheel.bundled["torch/lib"]


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
    known = windows_nodes()["snb-k40c"].model_copy(update={"toolchain": tools})
    group = only(plan_of(**{"snb-k40c": known}))
    assert group.to_supply == (sentence,)


def test_a_constraint_blocks_a_windows_node_as_any_other() -> None:
    plan = plan_of("adl-3080")
    assert plan.windows == ()
    assert "torch 2.0 is for Python 3.8 to 3.11" in (plan.nodes["adl-3080"].reason or "")
    assert plan.nodes["adl-3080"].planned_only is None


def test_nodes_of_the_same_target_share_a_group() -> None:
    twin = windows_nodes()["snb-k40c"]
    group = only(plan_of("snb-k40c", twin=twin))
    assert group.nodes == ("snb-k40c", "twin")


def test_the_inventory_overrides_the_probe() -> None:
    plan = planned(
        {"w": windows_nodes()["snb-k40c"]},
        nodes=[node("w", isa="x86-64-v2", sms=())],
        packages=TORCH,
    )
    assert only(plan).name == "cpu-x86-64-v2-cp310-win"
    assert "CXXFLAGS" not in only(plan).wheels[0].environment


def test_openblas_has_to_be_named_by_hand() -> None:
    config = Config.model_validate({"build": {"blas": "openblas"}})
    group = only(plan_of("nhm-w3520", config=config))
    assert group.wheels[0].environment["BLAS"] == "OpenBLAS"
    assert "nhm-w3520: set OpenBLAS_HOME to the folder of OpenBLAS before the script runs." in (
        group.to_supply
    )


def test_a_recipe_that_says_nothing_about_windows_gives_no_script() -> None:
    group = only(plan_of("skl-6700hq", packages=[package("numpy", "2.1.0")]))
    assert group.wheels[0].problem == (
        "The recipe numpy does not say how numpy is built on Windows."
    )


def test_the_fix_for_a_missing_python_is_a_command_of_windows() -> None:
    known = windows_nodes()["skl-6700hq"].model_copy(update={"pythons": ()})
    assigned = plan_of(w=known).nodes["w"]
    assert assigned.reason == "The node has no CPython."
    assert "winget install Python.Python.3.11" in (assigned.fix or "")


def test_explain_shows_how_the_wheels_are_built() -> None:
    plan = plan_of("snb-k40c")
    lines = "\n".join(explain_group(plan, {}, "sm35-avx-cp310-win"))
    assert PLANNED_ONLY in lines
    assert "compiler: MSVC older than 14.30" in lines
    assert "CXXFLAGS=/arch:AVX" in lines
    node_lines = "\n".join(explain_node(plan, windows_nodes()["snb-k40c"], "snb-k40c"))
    assert "sm35-avx-cp310-win: snb-k40c" in node_lines
