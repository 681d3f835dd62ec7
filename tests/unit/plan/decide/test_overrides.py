"""A recipe's own flags and lists of SMs, against what its wheels are for."""

from __future__ import annotations

import pytest

from fleetbuild.models import Facts, Plan
from fleetbuild.plan.decide.packages import Package
from tests.factories.fleets import facts, package, planned, recipe_of


def gpu(*sms: str) -> Facts:
    return facts(sms=sms, driver="580.65.06")


def own(**environment: str) -> Package:
    """A torch whose recipe sets these."""
    values = ", ".join(f"{name}: {value!r}" for name, value in environment.items())
    more = f"cuda: true\nenvironment: {{{values}}}"
    return package("torch", "2.13.0", recipe_of("torch", "avx", "avx2", more=more))


def plan_of(listed: str, *sms: str) -> Plan:
    return planned({"a": gpu(*sms)}, packages=(own(TORCH_CUDA_ARCH_LIST=listed),), sources=())


def test_a_flag_beyond_the_target_is_a_warning() -> None:
    recipe = own(CFLAGS="-O3 -march=skylake-avx512", CXXFLAGS="-O3 {{ flags }} -mavx")
    old, new = planned({"a": facts("avx"), "b": facts()}, packages=(recipe,), sources=()).warnings
    assert "torch for cpu-avx-cp311: CFLAGS has -march=skylake-avx512, which enables abm," in old
    assert new == (
        "torch for cpu-avx2-cp311: CFLAGS has -march=skylake-avx512, which enables avx512bw, "
        "avx512cd, avx512dq, avx512f and avx512vl: the audit rejects a wheel that uses this. "
        "In the recipe torch, write {{ flags }} instead: it enables exactly what the target has."
    )


@pytest.mark.parametrize("name", ["torch", "numpy", "llama-cpp-python", "hnswlib", "something"])
def test_our_recipes_stay_within_their_targets(name: str) -> None:
    fleet = {rung: facts(rung) for rung in ("x86-64", "avx", "avx2", "amx", "armv8.2", "armv9")}
    plan = planned(fleet, packages=(package(name, "2.13.0"),), sources=())
    assert plan.groups
    assert not [warning for warning in plan.warnings if "turns on" in warning]


@pytest.mark.parametrize(
    ("listed", "sms", "reason"),
    [
        ("8.0", ("7.5",), "which builds no code for SM 7.5."),
        ("8.6", ("8.6", "8.7"), "which builds no code for SM 8.7."),
        ("9.0a", ("9.0", "12.0"), "which builds no code for SM 12.0."),
        ("Turing", ("8.6",), "which builds no code for SM 8.6."),
        ("sm_90", ("9.0",), "and sm_90 is not an SM such as 8.6."),
        ("8.6;86", ("8.6",), "and 86 is not an SM such as 8.6."),
    ],
)
def test_a_list_without_a_nodes_sm_is_blocked(
    listed: str, sms: tuple[str, ...], reason: str
) -> None:
    node = plan_of(listed, *sms).nodes["a"]
    assert node.state == "blocked"
    assert node.reason == f"The recipe torch sets TORCH_CUDA_ARCH_LIST to {listed}, {reason}"
    assert node.fix is not None
    assert "{{ sms | join(';') }}" in node.fix


@pytest.mark.parametrize(
    ("listed", "sms"),
    [
        ("8.6", ("8.6",)),
        ("8.0 8.6", ("8.6", "8.9")),
        ("7.5+PTX", ("8.6",)),
        ("8.6(8.0)", ("8.6",)),
        ("9.0a", ("9.0",)),
        ("Ampere+PTX", ("8.6",)),
        ("Common", ("8.6",)),
    ],
)
def test_a_recipes_sm_list_that_serves_the_node_is_accepted(
    listed: str, sms: tuple[str, ...]
) -> None:
    assert plan_of(listed, *sms).nodes["a"].state == "ok"


def test_without_gpus_the_sm_list_is_ignored() -> None:
    recipe = own(TORCH_CUDA_ARCH_LIST="{{ '8.0' if cuda }}")
    assert planned({"a": facts()}, packages=(recipe,), sources=()).nodes["a"].state == "ok"
