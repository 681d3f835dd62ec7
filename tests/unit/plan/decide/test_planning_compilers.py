"""The compiler of a build: the default one, one beside it, or one to be supplied."""

from __future__ import annotations

from typing import Any

import pytest

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Os
from fleetbuild.toolchains.compilers import (
    CompilerNeed,
    additional_gcc,
    compiler_for,
    flags_for,
    lacks_compiler,
    missing_compiler,
    packaged_gccs,
    required_compiler,
)
from fleetbuild.toolchains.cuda import Gcc
from tests.factories.fleets import facts, package, planned, recipe_of

BF16 = package("bf", recipe=recipe_of("bf", "avx2", "avx512bf16", more="sources: [sdist]\n"))


def gcc(version: str) -> dict[str, tuple[str, ...]]:
    return {"gcc": (version,), "g++": (version,)}


def on(system: str, version: str, compiler: str | None = None, **more: Any) -> Any:
    """A node of this distribution."""
    tools = gcc(compiler) if compiler else {}
    return facts("avx512bf16", os=Os(id=system, version=version), toolchain=tools, **more)


@pytest.mark.parametrize(
    ("system", "version", "default", "newest"),
    [
        ("debian", "11", "10", "9"),
        ("debian", "13", "14", "13"),
        ("ubuntu", "26.04", "15", "14"),
        ("ubuntu", "20.04", "9", "10"),
        ("rocky", "8.10", "8", "14"),
        ("rhel", "9.4", "11", "14"),
        ("opensuse-leap", "15.6", "7", "14"),
    ],
)
def test_distributions_package_the_listed_gccs(
    system: str, version: str, default: str, newest: str
) -> None:
    offer = packaged_gccs(system, version)
    assert (offer.default, offer.additional[-1]) == (default, newest)
    assert list(offer.additional) == sorted(offer.additional, key=float)


def test_an_unknown_point_release_is_looked_up_by_its_major_version() -> None:
    assert packaged_gccs("alpine", "3.22.1").default == "14"
    assert packaged_gccs("alpine", "3.23.0").default == "15"
    assert packaged_gccs("alpine", "3.2").default is None


@pytest.mark.parametrize("system", [("debian", "99"), ("plan9", "4"), (None, None), ("ubuntu", "")])
def test_an_unknown_distribution_release_has_no_known_gcc(system: tuple[str, str]) -> None:
    assert packaged_gccs(*system).default is None
    assert packaged_gccs(*system).additional == ()


@pytest.mark.parametrize(
    ("node", "expected", "additional"),
    [
        (on("debian", "12", "12.2.0"), "gcc 12.2.0 (present)", None),
        (
            on("ubuntu", "20.04", "9.4.0"),
            "gcc 10 (by the toolchain role: gcc 9.4.0 does not know avx512_bf16)",
            "10",
        ),
        (
            on("rocky", "8.10", "8.5.0"),
            "gcc 10 (by the toolchain role: gcc 8.5.0 does not know avx512_bf16)",
            "10",
        ),
        # Nothing is there, and what would be installed is too old.
        (
            on("ubuntu", "20.04"),
            "gcc 10 (by the toolchain role: gcc 9 does not know avx512_bf16)",
            "10",
        ),
        (on("debian", "12"), "gcc (to be installed by the toolchain role)", None),
        (on("plan9", "4"), "gcc (to be installed by the toolchain role)", None),
    ],
)
def test_an_additional_gcc_is_used_if_the_default_is_too_old(
    node: Any, expected: str, additional: str | None
) -> None:
    need = CompilerNeed(RUNGS["avx512bf16"])
    assert required_compiler(need, node) == expected
    assert additional_gcc(need, node) == additional
    assert not lacks_compiler(need, node)
    assert missing_compiler(need, "n", node) == ()


def test_flags_are_spelled_for_the_chosen_compiler() -> None:
    need, old = CompilerNeed(RUNGS["avx512bf16"]), on("ubuntu", "20.04", "9.4.0")
    assert flags_for(need, [old]).endswith("-mavx512vnni -mavx512bf16")
    avx2 = CompilerNeed(RUNGS["avx2"])
    assert "-march=x86-64-v3" in flags_for(avx2, [on("debian", "12", "12")])


def test_without_a_suitable_packaged_gcc_the_user_has_to_install_one() -> None:
    node = on("ubuntu", "18.04", "7.5.0")
    (sentence,) = missing_compiler(CompilerNeed(RUNGS["avx512bf16"]), "old", node)
    assert sentence.startswith(
        "old compiles with gcc 7.5.0, which does not know avx512_bf16, avx512_vnni, and its "
        "distribution has no other that would do: install gcc 10 or newer as gcc and g++ there"
    )
    assert lacks_compiler(CompilerNeed(RUNGS["avx512bf16"]), node)
    (sentence,) = missing_compiler(CompilerNeed(RUNGS["amx"]), "n", on("debian", "11"))
    assert "n compiles with gcc 10, which does not know amx_bf16, amx_int8, amx_tile" in sentence


def test_gcc_ranges_of_packages_and_toolkits_are_respected() -> None:
    node = on("ubuntu", "22.04", "11.4.0")
    below = CompilerNeed(RUNGS["avx2"], Gcc("6", "11"))
    assert additional_gcc(below, node) == "9"
    assert required_compiler(below, node) == (
        "gcc 9 (by the toolchain role: gcc 11.4.0 is not gcc 6 to below 11)"
    )
    assert additional_gcc(CompilerNeed(RUNGS["avx512bf16"], Gcc("6", "11")), node) == "10"
    assert additional_gcc(CompilerNeed(RUNGS["avx2"], Gcc("11.3")), node) is None
    assert (
        additional_gcc(CompilerNeed(RUNGS["avx2"], Gcc("11.3")), on("rocky", "8.10", "8.5.0"))
        == "12"  # gcc-toolset-11 is 11.2
    )
    assert additional_gcc(CompilerNeed(RUNGS["avx2"], Gcc("9.4")), on("rocky", "8.10")) == "10"
    (sentence,) = missing_compiler(CompilerNeed(RUNGS["amx"], Gcc("6", "10")), "n", node)
    assert "which is not gcc 6 to below 10" in sentence


def test_a_toolkit_that_accepts_the_compiler_is_an_option() -> None:
    need, node = CompilerNeed(RUNGS["avx2"], Gcc("6", "14")), on("fedora", "42", "15.1.1")
    (sentence,) = missing_compiler(need, "n", node, ("13.0", "13.1"))
    assert sentence.endswith(
        "install gcc 6 to below 14 as gcc and g++ there, let another node build (build.builders) "
        "or install a CUDA toolkit there that accepts it (13.0 or 13.1)."
    )
    # No toolkit helps a compiler that does not know the rung.
    (sentence,) = missing_compiler(CompilerNeed(RUNGS["amx"]), "n", on("debian", "11"), ("13.0",))
    assert sentence.endswith("or take a lower rung (fleetbuild_isa).")
    assert "toolkit" not in sentence


def test_the_gccs_of_debian_13_serve_older_toolkits() -> None:
    need = CompilerNeed(RUNGS["avx2"], Gcc("6", "14"))
    assert additional_gcc(need, on("debian", "13", "14.2.0")) == "12"


def beside(system: str, version: str, default: str, **others: str) -> Any:
    """A node of this distribution with other gccs beside its default one: gcc_11="11.3.0"."""
    tools = {name.replace("_", "-"): (printed,) for name, printed in others.items()}
    return facts("avx512bf16", os=Os(id=system, version=version), toolchain=gcc(default) | tools)


def test_an_installed_gcc_beside_the_default_one_is_present() -> None:
    need = CompilerNeed(RUNGS["avx2"], Gcc("6", "12"))
    node = beside("debian", "12", "12.2.0", gcc_12="12.2.0", gcc_11="11.3.0")
    assert required_compiler(need, node) == (
        "gcc 11.3.0 (present: gcc 12.2.0 is not gcc 6 to below 12)"
    )
    assert additional_gcc(need, node) == "11"
    # Without that line, as in older captures, it is unknown.
    bare = on("debian", "12", "12.2.0")
    assert required_compiler(need, bare).startswith("gcc 11 (by the toolchain role: gcc 12.2.0 is")


def test_an_installed_gcc_comes_before_a_packaged_one() -> None:
    need = CompilerNeed(RUNGS["avx2"], Gcc("6", "11"))
    assert additional_gcc(need, on("ubuntu", "22.04", "11.4.0")) == "9"
    assert additional_gcc(need, beside("ubuntu", "22.04", "11.4.0", gcc_10="10.5.0")) == "10"
    old = beside("ubuntu", "22.04", "11.4.0", gcc_5="5.5.0")
    assert additional_gcc(need, old) == "9"


def test_an_installed_gcc_serves_where_the_distribution_packages_none() -> None:
    need, node = CompilerNeed(RUNGS["avx2"], Gcc("6", "14")), beside("fedora", "42", "15.1.1")
    assert missing_compiler(need, "n", node)
    node = beside("fedora", "42", "15.1.1", gcc_13="13.3.0")
    assert missing_compiler(need, "n", node) == ()
    assert not lacks_compiler(need, node)


@pytest.mark.parametrize(
    ("name", "printed"),
    [("gcc-11", "10.2.0"), ("gcc-1", "11.3.0"), ("gcc-1a", "1a.2"), ("gcc-", "11")],
)
def test_a_gcc_whose_name_and_version_differ_is_not_used(name: str, printed: str) -> None:
    need = CompilerNeed(RUNGS["avx2"], Gcc("1", "12"))
    node = facts(os=Os(id="debian", version="12"), toolchain=gcc("12.2.0") | {name: (printed,)})
    assert required_compiler(need, node).startswith("gcc 11 (by the toolchain role")


def test_gcc_ranges_do_not_apply_to_clang() -> None:
    node = facts(toolchain={"clang": ("14.0.6",)})
    compiler = compiler_for(CompilerNeed(RUNGS["avx2"], Gcc("6", "9")), node)
    assert str(compiler) == "clang 14.0.6"


def test_an_unknown_compiler_version_is_accepted() -> None:
    node = facts(toolchain={"clang": ()})
    assert str(compiler_for(CompilerNeed(RUNGS["amx"]), node)) == "clang of unknown version"


def test_the_plan_lists_the_gcc_of_each_builder() -> None:
    fleet = {
        "new": on("debian", "12", "12.2.0"),
        "old": on("ubuntu", "20.04", "9.4.0", libc="2.31"),
    }
    (group,) = planned(fleet, packages=(BF16,)).groups
    (wheel,) = group.wheels
    assert (wheel.built_on, wheel.build_gccs) == ("old", {"old": "10"})
    assert wheel.requires.compiler.startswith("gcc 10 (by the toolchain role")
    assert wheel.requires.to_supply == ()
    assert wheel.environment["CFLAGS"].endswith("-mavx512bf16")


def test_among_equal_members_one_with_a_suitable_compiler_builds() -> None:
    fleet = {
        "big": on("ubuntu", "18.04", "7.5.0", memory_gb=512.0),
        "small": on("debian", "12", "12.2.0"),
    }
    (wheel,) = planned(fleet, packages=(BF16,)).groups[0].wheels
    assert (wheel.built_on, wheel.fallbacks) == ("small", ("big",))
    assert wheel.requires.to_supply == ()


def test_without_a_suitable_compiler_apply_stops_before_the_first_build() -> None:
    (wheel,) = planned({"a": on("ubuntu", "18.04", "7.5.0")}, packages=(BF16,)).groups[0].wheels
    assert wheel.requires.compiler == "gcc 7.5.0 (present)"
    assert "which does not know avx512_bf16, avx512_vnni" in wheel.requires.to_supply[0]


@pytest.mark.parametrize(
    ("version", "rung", "gcc", "missing"),
    [
        ("2.12.1", "armv8.4sve", "11.4.0", True),
        ("2.12.1", "armv8.4sve", "12.2.0", True),
        ("2.12.1", "armv8.4sve", "13.3.0", False),
        ("2.12.1", "armv9", "11.4.0", False),
        ("2.10.0", "armv8.4sve", "11.4.0", False),
    ],
)
def test_torchs_sve_kernels_need_gcc_13(version, rung, gcc, missing):
    """Its CMake stops otherwise, after the build has begun."""
    node = facts(rung, os=Os(id="unknown", version="1"), toolchain={"gcc": (gcc,), "g++": (gcc,)})
    (group,) = planned({"g3": node}, packages=[package("torch", version)]).groups
    said = " ".join(group.wheels[0].requires.to_supply)
    assert ("gcc 13" in said) == missing
