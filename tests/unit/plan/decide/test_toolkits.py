"""Which toolkit a group is built with, and the sentences if no toolkit fits."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from fleetbuild.hardware.cuda import TOOLKITS, compiles_for, minor, serves
from fleetbuild.hardware.gpus import SMS
from fleetbuild.hardware.nvidia import toolkit_archives, toolkit_requirements
from fleetbuild.hardware.pytorch import EVIDENCE, TORCHES, Torch, find_torch
from fleetbuild.models import Facts
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.compatibility.toolkits import (
    Toolkit,
    choose_toolkit,
    compiler_needed,
    node_incompatibility,
    package_incompatibility,
)
from fleetbuild.text import version_key
from tests.factories.data import seed_fleet
from tests.factories.fleets import facts, package, planned, python

TORCH = {"torch": "2.13.0"}


def gpu(*sms: str, driver: str | None = "580.95.05", cuda: str = "", **more: object) -> Facts:
    """A node with these SMs, and these toolkits."""
    tools = {"gcc": ("12.2.0",), "g++": ("12.2.0",)}
    if cuda:
        tools["nvcc"] = tuple(cuda.split())
    return facts(sms=sms, driver=driver, toolchain={**tools, **more.pop("tools", {})}, **more)  # type: ignore[dict-item, arg-type]


def choose(
    versions: Mapping[str, str], *members: Facts, tag: str = "cp311", **more: str
) -> Toolkit | Problem:
    """The choice for these members, who are the builders too."""
    sms = sorted({sm for member in members for sm in member.sms})
    builders = {f"n{number}": member for number, member in enumerate(members)}
    return choose_toolkit(versions, sms, tag, members, builders, **more)


def chosen(versions: Mapping[str, str], *members: Facts, **more: str) -> Toolkit:
    """Return the choice; fail if nothing fits."""
    choice = choose(versions, *members, **more)
    assert isinstance(choice, Toolkit), choice
    return choice


def problem(versions: Mapping[str, str], node: Facts, tag: str = "cp311", **more: str) -> Problem:
    """Return the problem; fail if nothing is wrong."""
    unfit = node_incompatibility(versions, node, tag, **more)
    assert unfit is not None
    return unfit


# Choosing


def test_an_installed_toolkit_comes_before_one_to_be_supplied() -> None:
    choice = chosen(TORCH, gpu("8.6", cuda="12.6"))
    assert (choice.version, choice.evidence, choice.installed_on) == ("12.6", "released", ("n0",))


def test_a_toolkit_that_nobody_built_this_torch_with_comes_last_even_if_it_is_installed() -> None:
    choice = chosen(TORCH, gpu("8.6", driver="550.54.15", cuda="12.4"))
    assert (choice.version, choice.evidence, choice.installed_on) == ("12.6", "released", ())
    assert choice.why == (
        "No builder has a matching CUDA toolkit; PyTorch releases torch 2.13 with CUDA 12.6; "
        "CUDA 12.4 on n0 is not taken: no torch 2.13 was built with it before "
        '(cuda: "12.4" takes it).'
    )
    pinned = chosen(TORCH, gpu("8.6", driver="550.54.15", cuda="12.4"), pin="12.4")
    assert (pinned.version, pinned.installed_on) == ("12.4", ("n0",))


@pytest.mark.parametrize("torch", ["2.12.1", "2.13.0"])
@pytest.mark.parametrize("cuda", ["12.1", "12.2"])
def test_torch_in_cxx20_is_not_built_with_headers_that_do_not_compile_as_such(
    torch: str, cuda: str
) -> None:
    unfit = problem({"torch": torch}, gpu("8.6", cuda=cuda), pin=cuda)
    assert f"torch {torch[:4]} needs CUDA 12.3 or newer" in unfit.reason
    assert chosen({"torch": "2.11.0"}, gpu("8.6", cuda=cuda), pin=cuda).version == cuda


def test_a_released_combination_comes_before_one_that_merely_can_be_built() -> None:
    choice = chosen(TORCH, gpu("8.6", cuda="12.6.85 12.9 13.3"))
    assert (choice.version, choice.evidence) == ("12.6", "released")
    assert choice.why == "CUDA 12.6 is installed on n0; PyTorch releases torch 2.13 with CUDA 12.6."


def test_what_nobody_built_is_taken_as_near_as_possible_to_a_release() -> None:
    """PyTorch releases 2.6 with 12.6 at most; 12.8 and 12.9 compile for Blackwell."""
    choice = chosen({"torch": "2.6.0"}, gpu("10.0"))
    assert (choice.version, choice.evidence) == ("12.8", "buildable")


def test_the_newest_torch_is_built_with_the_cuda_12_that_pytorch_names() -> None:
    """2.15 is released with CUDA 13 only, which driver 550 does not run."""
    choice = chosen({"torch": "2.15.0"}, gpu("8.6", driver="550.54.15"))
    assert (choice.version, choice.evidence) == ("12.6", "reported")


def test_the_newest_released_combination_wins_and_experiments_come_last() -> None:
    assert chosen(TORCH, gpu("8.6", cuda="12.6 13.0 13.2")).version == "13.0"
    assert chosen({"torch": "2.14.1"}, gpu("8.6", cuda="12.6 13.0 13.2")).version == "13.2"
    choice = chosen(TORCH, gpu("8.6", cuda="13.2 13.3"))
    assert choice.version == "13.2"
    assert choice.why.endswith("PyTorch releases torch 2.13 with CUDA 13.2 as an experiment.")


def test_without_an_installed_toolkit_the_newest_released_one_is_required() -> None:
    choice = chosen(TORCH, gpu("8.6"))
    assert (choice.version, choice.evidence, choice.installed_on) == ("13.0", "released", ())
    assert choice.why == (
        "No builder has a matching CUDA toolkit; PyTorch releases torch 2.13 with CUDA 13.0."
    )


def test_a_pinned_toolkit_is_taken_as_it_is() -> None:
    choice = chosen(TORCH, gpu("8.6", cuda="13.0"), pin="12.8.1")
    assert (choice.version, choice.evidence, choice.installed_on) == ("12.8", "buildable", ())
    assert choice.why.startswith("fleetbuild.yml asks for CUDA 12.8; no builder has CUDA 12.8; ")


def test_the_oldest_driver_counts() -> None:
    members = gpu("8.6", cuda="12.6 13.0"), gpu("8.6", driver="535.183.01")
    assert chosen(TORCH, *members).version == "12.6"


def test_an_unknown_driver_sets_no_limit_and_is_mentioned() -> None:
    choice = chosen(TORCH, gpu("8.6", driver=None, cuda="13.0"))
    assert choice.version == "13.0"
    assert choice.why.endswith("; the driver of 1 member is unknown and was not checked.")


def test_builders_are_named_in_their_order() -> None:
    member = gpu("8.6")
    builders = {"z": gpu(cuda="13.0"), "a": gpu(cuda="13.0 12.6"), "m": gpu()}
    choice = choose_toolkit(TORCH, ["8.6"], "cp311", [member], builders)
    assert isinstance(choice, Toolkit)
    assert choice.installed_on == ("z", "a")
    assert choice.why.startswith("CUDA 13.0 is installed on z and a; ")


def test_a_builder_with_a_fitting_compiler_comes_first() -> None:
    builders = {
        "old": gpu(cuda="13.0", tools={"gcc": ("9.4.0",)}),
        "both": gpu(cuda="12.6", tools={"gcc": ("9.4.0", "12.3.0")}),
    }
    choice = choose_toolkit(TORCH, ["8.6"], "cp311", [gpu("8.6")], builders)
    assert isinstance(choice, Toolkit)
    assert (choice.version, choice.installed_on) == ("12.6", ("both",))


def test_a_gcc_beside_the_default_one_fits_a_toolkit() -> None:
    builders = {
        "old": gpu(cuda="13.0", tools={"gcc": ("9.4.0",)}),
        "both": gpu(cuda="12.6", tools={"gcc": ("9.4.0",), "gcc-12": ("12.3.0",)}),
    }
    choice = choose_toolkit(TORCH, ["8.6"], "cp311", [gpu("8.6")], builders)
    assert isinstance(choice, Toolkit)
    assert (choice.version, choice.installed_on) == ("12.6", ("both",))


def test_an_installed_toolkit_without_a_suitable_gcc_beats_an_absent_one() -> None:
    choice = chosen(TORCH, gpu("8.6", cuda="13.0", tools={"gcc": ("9.4.0",)}))
    assert choice.installed_on == ("n0",)
    assert choice.why.endswith(
        "; the compiler there is not gcc 11.3 to below 16, so another one is needed."
    )


def test_toolkits_that_accept_the_installed_compiler_are_listed() -> None:
    node = gpu("8.6", driver="550.54.15", cuda="12.4", tools={"gcc": ("14.2.0",)})
    choice = chosen(TORCH, node)
    assert (choice.version, choice.alternatives) == ("12.6", ("12.8", "12.9"))
    assert chosen(TORCH, node, pin="12.4").alternatives == ("12.8", "12.9")
    assert chosen(TORCH, gpu("8.6", cuda="13.0")).alternatives == ()


def test_a_builder_without_a_compiler_gets_a_suitable_one() -> None:
    builder = facts(sms=("8.6",), driver="580.95.05", toolchain={"nvcc": ("13.0",)})
    assert "outside" not in chosen(TORCH, builder).why


def test_several_sms_share_a_toolkit() -> None:
    choice = chosen({"torch": "2.0.1"}, gpu("3.5", "9.0", driver="470.256.02"), tag="cp310")
    assert (choice.version, choice.evidence) == ("11.8", "released")


def test_a_reported_combination_is_named_as_such() -> None:
    choice = chosen({"torch": "2.0.1"}, gpu("3.5", driver="470.256.02", cuda="11.4"), tag="cp310")
    assert (choice.version, choice.evidence) == ("11.4", "reported")
    assert "torch 2.0 with CUDA 11.4 is reported to work on SM 3.5" in choice.why


def test_a_release_without_code_for_the_sm_does_not_count_as_evidence() -> None:
    choice = chosen({"torch": "2.5.1"}, gpu("3.5", driver="470.256.02"))
    assert (choice.version, choice.evidence) == ("11.8", "buildable")
    assert (
        "PyTorch's own torch 2.5 with CUDA 11.8 has no code for SM 3.5, and no such "
        "build is known" in choice.why
    )
    # 12.8 is newer, but only the wheels for 12.6 have code for Volta.
    assert chosen({"torch": "2.11.0"}, gpu("7.0")).version == "12.6"


def test_a_torch_newer_than_the_table_is_taken_as_buildable() -> None:
    choice = chosen({"torch": "2.99.0"}, gpu("8.6", cuda="13.0"))
    assert (choice.version, choice.evidence) == ("13.0", "buildable")
    newest = list(TORCHES)[-1]
    assert f"torch 2.99 is newer than the newest known version, {newest}" in choice.why


def test_without_torch_only_sms_and_drivers_limit_the_toolkit() -> None:
    old = gpu("8.6", driver="535.183.01", cuda="11.8", tools={"gcc": ("11.4.0",)})
    choice = chosen({"llama-cpp-python": "0.3.2"}, old)
    assert (choice.version, choice.evidence) == ("11.8", "buildable")
    assert choice.why == "CUDA 11.8 is installed on n0; CUDA 11.8 compiles for SM 8.6."
    assert chosen({"hnswlib": "0.8.0"}, gpu("8.6")).version == list(TOOLKITS)[-1]


@pytest.mark.parametrize(
    ("libc", "version"),
    [("2.36", "13.2"), ("2.41", "13.2"), ("2.42", "13.2")],
)
def test_the_newest_released_toolkit_compiles_with_any_glibc(libc: str, version: str) -> None:
    assert chosen({"torch": "2.14.1"}, gpu("8.6", driver=None, libc=libc)).version == version


@pytest.mark.parametrize(
    ("libc", "version"), [("2.36", "12.6"), ("2.41", "13.0"), ("2.42", "12.6")]
)
def test_a_toolkit_that_compiles_with_the_glibc_comes_before_an_installed_one(
    libc: str, version: str
) -> None:
    here = gpu("8.6", cuda="12.6", driver=None, libc=libc)
    assert chosen({"torch": "2.11.0"}, here).version == version


def test_one_builder_with_an_older_glibc_is_enough() -> None:
    new, old = gpu("8.6", cuda="12.6", libc="2.41"), gpu("8.6", cuda="12.6", libc="2.40")
    assert chosen({"torch": "2.7.1"}, new, old).installed_on == ("n1",)


def test_a_toolkit_that_can_be_fetched_comes_before_a_newer_one_to_be_supplied() -> None:
    assert chosen({"hnswlib": "0.8.0"}, gpu("6.1")).version == "12.8"
    assert chosen({"hnswlib": "0.8.0"}, gpu("6.1", cuda="12.9")).version == "12.9"


def test_released_combinations_depend_on_the_architecture() -> None:
    turing = gpu("7.5", driver="535.183.01")
    arm = gpu("7.5", driver="535.183.01", rung="armv8.2")
    assert chosen(TORCH, turing).evidence == "released"
    assert chosen(TORCH, arm).evidence == "buildable"


def test_names_of_packages_are_normalised() -> None:
    assert isinstance(choose({"Torch": "2.13.0"}, gpu("3.5")), Problem)


def test_a_companion_for_another_torch_is_refused() -> None:
    choice = choose({"hnswlib": "0.8.0"}, gpu("3.5"), gpu("12.0"))
    assert choice == Problem(
        reason="SM 3.5 needs CUDA 11.8 or older; SM 12.0 needs CUDA 12.8 or newer.",
        fix="Set fleetbuild_sms for the node to SM 12.0, which one toolkit compiles for.",
    )


# Nodes for which nothing will do


def test_a_kepler_gpu_with_a_new_torch_is_offered_an_older_torch() -> None:
    unfit = problem(TORCH, gpu("3.5", driver="470.256.02"), "cp310")
    assert unfit.reason == "SM 3.5 needs CUDA 11.8 or older; torch 2.13 needs CUDA 12.3 or newer."
    assert unfit.fix == (
        "torch 2.0.1 with CUDA 11.7 or 11.8 is the newest that PyTorch releases, 11.4 is reported "
        "to work. Plan such nodes separately, under a release name of their own."
    )


def test_the_fix_names_companions_of_the_nearest_torch() -> None:
    versions = {**TORCH, "torchvision": "0.28.0", "torchaudio": "2.11.0"}
    unfit = problem(versions, gpu("3.5", driver="470.256.02"), "cp310")
    assert unfit.fix.startswith(
        "torch 2.0.1 (torchvision 0.15.2 and torchaudio 2.0.2) with CUDA 11.7 or 11.8 "
    )


def test_sm_3_7_is_offered_a_newer_torch_than_sm_3_5() -> None:
    unfit = problem(TORCH, gpu("3.7", driver="470.256.02"))
    assert unfit.fix.startswith("torch 2.7.1 with CUDA 11.8 is the newest that PyTorch releases")


def test_the_fix_names_a_reported_combination() -> None:
    unfit = problem(TORCH, gpu("3.5", driver="440.33.01"), "cp310")
    assert unfit.fix.startswith("torch 1.12.1 with CUDA 10.2 is the newest")


def test_a_too_old_driver_is_named() -> None:
    unfit = problem(TORCH, gpu("8.6", driver="470.256.02"))
    assert unfit.reason == (
        "Driver 470.256.02 runs CUDA 11.8 or older; torch 2.13 needs CUDA 12.3 or newer."
    )
    assert unfit.fix.startswith(
        "Update its driver to 525.60.13 or newer, which CUDA 12.3 needs; torch 2.7.1 with "
        "CUDA 11.8 is the newest that PyTorch releases"
    )


def test_a_driver_older_than_all_toolkits_is_named() -> None:
    unfit = problem({"hnswlib": "0.8.0"}, gpu("3.0", driver="390.157"))
    assert unfit.reason == (
        "Driver 390.157 runs CUDA 10.1 or older; fleetbuild supports CUDA 10.2 or newer."
    )
    assert unfit.fix == "Update its driver to 440.33 or newer, which CUDA 10.2 needs."


def test_sms_without_a_common_toolkit_are_named() -> None:
    unfit = problem(TORCH, gpu("3.7", "8.6", "12.0"))
    assert unfit.reason == (
        "SM 3.7 needs CUDA 11.8 or older; SM 12.0 needs CUDA 12.8 or newer; torch 2.13 needs "
        "CUDA 12.3 or newer."
    )
    assert (
        unfit.fix
        == "Set fleetbuild_sms for the node to SM 8.6 and 12.0, which one toolkit compiles for."
    )


def test_sms_with_the_same_limit_share_a_sentence() -> None:
    unfit = problem(TORCH, gpu("3.5", "3.7"), "cp310")
    assert unfit.reason.startswith("SM 3.5 and 3.7 need CUDA 11.8 or older; ")


def test_an_sm_without_any_toolkit_is_named() -> None:
    unfit = problem(TORCH, gpu("8.6", "99.0"))
    assert (
        unfit.reason == f"No CUDA toolkit from 10.2 to {list(TOOLKITS)[-1]} compiles for SM 99.0."
    )
    assert unfit.fix == "Update fleetbuild, or set fleetbuild_sms for the node to supported SMs."


def test_an_sm_unsupported_by_torch_is_named() -> None:
    unfit = problem({"torch": "2.6.0"}, gpu("12.0"))
    assert unfit.reason == "torch 2.6 does not support SM 12.0."
    assert unfit.fix.startswith("torch 2.15.0 with CUDA 13.0 or 13.2 is the newest that")


def test_an_sm_that_needs_cuda_13_is_offered_a_newer_torch() -> None:
    unfit = problem({"torch": "2.8.0"}, gpu("11.0"))
    assert "SM 11.0 needs CUDA 13.0 or newer" in unfit.reason
    assert "torch 2.8 supports CUDA 12.9 or older" in unfit.reason


def test_a_toolkit_that_breaks_a_torch_is_named() -> None:
    unfit = problem({"torch": "2.4.1"}, gpu("8.6"), pin="12.9")
    assert unfit.reason.startswith(
        "torch 2.4 supports CUDA 12.8 or older (it links nvToolsExt, which CUDA 12.9 does not "
        "have); "
    )
    assert chosen({"torch": "2.2.2"}, gpu("8.6", cuda="12.4")).version == "11.8"


def test_volta_and_pascal_get_a_new_torch_from_source() -> None:
    """PyTorch releases torch 2.15 with CUDA 13 alone, which is not for them."""
    for sm in ("7.0", "6.1"):
        choice = chosen({"torch": "2.15.0"}, gpu(sm))
        assert (choice.version, choice.evidence) == ("12.6", "reported")
        assert choice.why.endswith(
            f"torch 2.15 with CUDA 12.6 is reported to work on SM {sm}, for which PyTorch's own "
            "with CUDA 13.0 and 13.2 has no code."
        )


def test_a_build_published_by_conda_forge_is_named() -> None:
    choice = chosen({"torch": "2.12.1"}, gpu("8.6", cuda="12.9"))
    assert (choice.version, choice.evidence) == ("12.9", "reported")
    assert choice.why == (
        "CUDA 12.9 is installed on n0; PyTorch does not release torch 2.12 with CUDA 12.9, and "
        "conda-forge does."
    )


def test_without_known_builds_the_fix_names_a_torch_that_should_build() -> None:
    unfit = problem({"torch": "2.0.1"}, gpu("8.7", rung="armv8.2"))
    assert unfit.reason == "torch 2.0 does not support SM 8.7."
    assert "is the newest that should build, but no such build is known" in unfit.fix


def test_a_pin_that_does_not_fit_is_named() -> None:
    unfit = problem(TORCH, gpu("8.6"), pin="11.8")
    assert unfit.reason == (
        "fleetbuild.yml asks for CUDA 11.8; torch 2.13 needs CUDA 12.3 or newer."
    )
    assert unfit.fix.startswith("Take cuda: out of fleetbuild.yml or set it to 13.0")


def test_an_unknown_pin_is_named() -> None:
    unfit = problem(TORCH, gpu("8.6"), pin="12.7")
    newest = list(TOOLKITS)[-1]
    assert unfit.reason == f"fleetbuild.yml asks for CUDA 12.7; supported are 10.2 to {newest}."
    assert unfit.fix.startswith("Take cuda: out of fleetbuild.yml or set it to 13.0")


def test_a_pin_that_the_driver_does_not_run_is_named() -> None:
    unfit = problem(TORCH, gpu("8.6", driver="550.54.15"), pin="13.0")
    assert unfit.reason == (
        "Driver 550.54.15 runs CUDA 12.9 or older; fleetbuild.yml asks for CUDA 13.0."
    )
    assert unfit.fix == (
        "Take cuda: out of fleetbuild.yml or set it to 12.6, or update its driver to 580 or newer, "
        "which CUDA 13.0 needs."
    )


@pytest.mark.parametrize("pin", ["12.6", "99.9"])
def test_a_pin_that_excludes_an_old_gpu_is_offered_to_be_removed(pin: str) -> None:
    old = gpu("3.5", driver="470.256.02")
    free = problem(TORCH, old).fix
    assert free.endswith("under a release name of their own.")
    assert problem(TORCH, old, pin=pin).fix == f"{free[:-1]} and without cuda:."


def test_the_fix_names_pin_and_driver_if_both_must_change() -> None:
    unfit = problem(TORCH, gpu("12.0", driver="470.256.02"), pin="12.6")
    assert unfit.reason == ("fleetbuild.yml asks for CUDA 12.6; SM 12.0 needs CUDA 12.8 or newer.")
    assert unfit.fix == (
        "Take cuda: out of fleetbuild.yml and update its driver to 525.60.13 or newer, which "
        "CUDA 12.8 needs."
    )


def test_an_old_driver_is_named_if_a_newer_one_would_allow_a_toolkit() -> None:
    """No torch goes with this driver, and one does with a newer driver."""
    unfit = problem(TORCH, gpu("3.5", driver="418.39"), "cp310")
    assert unfit.fix == (
        "torch 2.0.1 with CUDA 11.7 or 11.8 is the newest that PyTorch releases, 11.4 is reported "
        "to work. Plan such nodes separately, under a release name of their own and with driver "
        f"{TOOLKITS['11.4'].driver} or newer, which CUDA 11.4 needs."
    )


def test_a_pin_and_an_old_driver_are_named_if_both_must_change() -> None:
    unfit = problem(TORCH, gpu("3.5", driver="418.39"), "cp310", pin="12.6")
    assert unfit.fix.endswith(
        "Plan such nodes separately, under a release name of their own, without cuda: and with "
        f"driver {TOOLKITS['11.4'].driver} or newer, which CUDA 11.4 needs."
    )


def test_the_fix_names_python_and_driver_if_both_must_change() -> None:
    unfit = problem(TORCH, gpu("8.6", driver="418.39"), "cp39")
    assert unfit.reason == (
        "torch 2.13 is for Python 3.10 to 3.14, not for 3.9; driver 418.39 runs CUDA 10.1 or "
        "older; SM 8.6 needs CUDA 11.1 or newer; torch 2.13 needs CUDA 12.3 or newer."
    )
    assert unfit.fix == (
        "Set fleetbuild_python to /usr/bin/python3 (3.11.2), which is installed, and update its "
        "driver to 525.60.13 or newer, which CUDA 12.3 needs."
    )


def test_a_python_unsupported_by_torch_is_named() -> None:
    both = (python("3.9.2"), python("3.12.1", "/usr/bin/python3.12"))
    unfit = problem(TORCH, facts(pythons=both), "cp39")
    assert unfit.reason == "torch 2.13 is for Python 3.10 to 3.14, not for 3.9."
    assert unfit.fix == (
        "Set fleetbuild_python to /usr/bin/python3.12 (3.12.1), which is installed; take torch "
        "2.8.0, the newest for Python 3.9. Plan such nodes separately, under a release name of "
        "their own."
    )


def test_the_fix_names_a_python_to_install() -> None:
    unfit = problem(TORCH, facts(pythons=(python("3.6.8"),)), "cp36")
    assert unfit.fix == ("Install Python 3.10 to 3.14 and name it in fleetbuild_python.")


def test_a_free_threaded_python_is_checked_as_its_own_abi() -> None:
    unfit = problem(TORCH, facts(), "cp313t")
    assert unfit.reason == "torch 2.13 is for Python 3.10 to 3.14, not for the free-threaded 3.13."


def test_a_python_and_an_sm_without_a_common_torch_are_named() -> None:
    unfit = problem(TORCH, gpu("3.5", driver="470.256.02"), "cp312")
    assert unfit.fix.startswith(
        "torch 2.0.1 for Python 3.8 to 3.11 with CUDA 11.7 or 11.8 is the newest that"
    )


def test_a_cpu_node_needs_python_alone() -> None:
    assert node_incompatibility(TORCH, facts(), "cp311") is None
    assert node_incompatibility(TORCH, facts(), "cp311", pin="11.8") is None
    assert node_incompatibility({"hnswlib": "0.8.0"}, facts(), "cp36") is None


def test_nodes_that_can_be_built_for_have_no_problem() -> None:
    assert node_incompatibility(TORCH, gpu("8.6"), "cp311") is None
    assert node_incompatibility(TORCH, gpu("8.6", driver=None), "cp311") is None
    assert node_incompatibility({"torch": "2.99.0"}, gpu("8.6"), "cp399") is None


# Packages


def test_companions_of_another_torch_are_named() -> None:
    unfit = package_incompatibility(
        {"torch": "2.13.0", "torchvision": "0.20.1", "torchaudio": "2.5.1"}
    )
    assert unfit == Problem(
        reason="torchvision 0.20.1 goes with torch 2.5.1, not with 2.13.0. torchaudio 2.5.1 goes "
        "with torch 2.5.1, not with 2.13.0.",
        fix="Take torchvision 0.28.0 with torch 2.13.0 or torch 2.5.1 with torchvision 0.20.1. "
        "Take torchaudio 2.11.0 with torch 2.13.0 or torch 2.5.1 with torchaudio 2.5.1.",
    )


def test_companions_that_need_a_newer_torch_are_named() -> None:
    unfit = package_incompatibility({"torch": "2.13.0", "torchvision": "0.29.2"})
    assert unfit is not None
    assert unfit.reason == "torchvision 0.29.2 goes with torch 2.14.0 or newer, not with 2.13.0."


def test_a_patch_release_missing_from_the_table_is_accepted() -> None:
    unfit = package_incompatibility({"torch": "2.13.0", "torchvision": "0.20.9"})
    assert unfit is not None
    assert unfit.reason == "torchvision 0.20.9 goes with torch 2.5, not with 2.13.0."


@pytest.mark.parametrize(
    "versions",
    [
        {"torch": "2.13.0", "torchvision": "0.28.0", "torchaudio": "2.11.0"},
        {"torch": "2.13.0+cu130.sm86.avx2", "torchvision": "0.28.0"},
        {"torch": "2.99.0", "torchvision": "0.99.0"},
        {"torch": "a tree"},
        {"torchvision": "0.20.1"},
        {"numpy": "2.4.0"},
        {},
    ],
)
def test_compatible_packages_have_no_problem(versions: dict[str, str]) -> None:
    assert package_incompatibility(versions) is None


def test_a_torch_older_than_the_table_is_refused() -> None:
    unfit = package_incompatibility({"torch": "1.9.0"})
    assert unfit is not None
    assert unfit.reason == "torch 1.9.0 is older than the oldest supported version, 1.12."
    assert unfit.fix == "Take torch 1.12.1 or newer."


# Compilers


def test_the_gcc_range_of_toolkit_and_torch_is_intersected() -> None:
    toolkit = chosen(TORCH, gpu("8.6", cuda="13.0"))
    assert str(compiler_needed(TORCH, toolkit)) == "gcc 11.3 to below 16"
    assert str(compiler_needed({"hnswlib": "0.8.0"}, toolkit)) == "gcc 6 to below 16"
    assert str(compiler_needed(TORCH, None)) == "gcc 11.3 or newer"
    assert compiler_needed({"hnswlib": "0.8.0"}, None) is None


# Properties

DRIVERS = ("390.157", "440.33.01", "450.80.02", "470.256.02", "535.183.01", "580.95.05", None)
TAGS = ("cp39", "cp310", "cp311", "cp313", "cp313t", "cp315")
VERSIONS = (*(torch.newest for torch in TORCHES.values()), "2.99.0")

sms_of_nodes = st.lists(st.sampled_from(sorted(SMS)), min_size=1, max_size=3, unique=True)
toolchains = st.fixed_dictionaries(
    {},
    optional={
        "nvcc": st.lists(st.sampled_from(list(TOOLKITS)), max_size=4, unique=True).map(tuple),
        "gcc": st.lists(st.sampled_from(["9.4.0", "11.4.0", "14.2.0"]), max_size=2).map(tuple),
    },
)


@st.composite
def nodes(draw: st.DrawFn) -> Facts:
    """A node with GPUs."""
    return facts(
        draw(st.sampled_from(["avx2", "armv8.2"])),
        sms=tuple(draw(sms_of_nodes)),
        driver=draw(st.sampled_from(DRIVERS)),
        toolchain=draw(toolchains),
    )


packages = st.one_of(
    st.sampled_from(VERSIONS).map(lambda version: {"torch": version}),
    st.just({"hnswlib": "0.8.0"}),
)
pins = st.one_of(st.none(), st.sampled_from([*TOOLKITS, "12.7", "99.0"]))
fleets = st.lists(nodes(), min_size=1, max_size=3)
many = settings(suppress_health_check=[HealthCheck.too_slow])


def allowed(
    toolkit: str, versions: Mapping[str, str], members: list[Facts], tag: str, pin: str | None
) -> bool:
    """What the tables say, put another way than the checker does."""
    torch = find_torch(versions.get("torch", ""))
    if pin is not None and toolkit != pin:
        return False
    if torch is not None:
        newest_major = max((version_key(cuda)[0] for cuda in torch.releases), default=99)
        if version_key(toolkit)[0] > newest_major or not torch.python.fits(tag):
            return False
        first, broken = torch.cuda_from, torch.broken.cuda if torch.broken else "99"
        if not version_key(first) <= version_key(toolkit) < version_key(broken):
            return False
        if torch.known and not {sm for each in members for sm in each.sms} <= torch.sms:
            return False
    if any(SMS[sm].jetson for each in members for sm in each.sms):
        theirs = [each.toolchain["nvcc"] for each in members if each.toolchain.get("nvcc")]
        if any(toolkit != max(nvccs, key=version_key) for nvccs in theirs):
            return False
    return all(
        compiles_for(toolkit, sm) and (member.driver is None or serves(member.driver, toolkit))
        for member in members
        for sm in member.sms
    )


def grade(torch: Torch, toolkit: str, sms: set[str], archs: set[str]) -> tuple[object, ...]:
    """Evidence, then what PyTorch calls stable, then how near it is to a release if nobody is known
    to have built it, then the version."""
    evidence = torch.evidence(toolkit, sms, archs)
    release = torch.releases.get(toolkit)
    stable = not (release and release.status == "experimental")
    known = list(TOOLKITS)
    steps = [abs(known.index(toolkit) - known.index(cuda)) for cuda in torch.releases]
    far = min(steps, default=0) if evidence == "buildable" else 0
    brought = all(
        toolkit_requirements(toolkit, arch, tuple(sms), ())
        or toolkit_archives(toolkit, arch, tuple(sms), ())
        for arch in archs
    )
    number = version_key(toolkit)
    return -EVIDENCE.index(evidence), stable, -far, number[0], brought, number


@many
@example({"torch": "1.12.1"}, [facts("avx2", sms=("6.2",), driver="450.80.02")], "cp39", None)
@given(packages, fleets, st.sampled_from(TAGS), pins)
def test_the_choice_is_the_best_that_the_tables_allow(
    versions: dict[str, str], members: list[Facts], tag: str, pin: str | None
) -> None:
    choice = choose(versions, *members, tag=tag, **({"pin": pin} if pin else {}))
    possible = [each for each in TOOLKITS if allowed(each, versions, members, tag, pin)]
    if isinstance(choice, Problem):
        assert possible == []
        assert choice.reason.endswith(".")
        assert choice.fix.endswith(".")
        return
    assert choice.version in possible
    owners = {f"n{number}": member for number, member in enumerate(members)}
    for name in choice.installed_on:
        assert choice.version in map(minor, owners[name].toolchain["nvcc"])
    torch = find_torch(versions.get("torch", ""))
    sms = {sm for member in members for sm in member.sms}
    archs = {member.arch or "" for member in members}
    known = [each for each in possible if torch and torch.evidence(each, sms, archs) != "buildable"]
    installed = [
        each
        for each in known or possible
        if any(each in member.toolchain.get("nvcc", ()) for member in members)
    ]
    assert bool(choice.installed_on) == bool(installed)
    if torch is None or installed:
        return
    best = max(possible, key=lambda each: grade(torch, each, sms, archs))
    assert choice.version == best


@many
@given(packages, fleets, st.sampled_from(TAGS), st.randoms())
def test_the_order_of_members_does_not_matter(
    versions: dict[str, str], members: list[Facts], tag: str, random: object
) -> None:
    sms = sorted({sm for member in members for sm in member.sms})
    builders = {f"n{number}": member for number, member in enumerate(members)}
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = choose_toolkit(versions, sms, tag, members, builders)
    assert first == choose_toolkit(versions, [*reversed(sms), *sms], tag, shuffled, builders)


@many
@given(packages, nodes(), st.sampled_from(TAGS), pins)
def test_a_node_has_a_problem_exactly_if_no_toolkit_is_allowed(
    versions: dict[str, str], node: Facts, tag: str, pin: str | None
) -> None:
    unfit = node_incompatibility(versions, node, tag, pin=pin)
    possible = [each for each in TOOLKITS if allowed(each, versions, [node], tag, pin)]
    assert (unfit is None) == bool(possible)
    if unfit:
        assert unfit.reason.endswith(".")
        assert unfit.fix.endswith(".")
        assert "None" not in unfit.reason + unfit.fix


@many
@given(nodes(), st.sampled_from(TAGS), st.sampled_from(VERSIONS))
def test_every_offered_torch_can_be_built(node: Facts, tag: str, version: str) -> None:
    unfit = node_incompatibility({"torch": version}, node, tag)
    assume(unfit is not None)
    assert unfit is not None
    newer = re.search(r"with driver (\S+) or newer", unfit.fix)
    if newer:
        node = node.model_copy(update={"driver": newer[1]})
    offered = re.search(r"torch (\d+\.\d+\.\d+)( for Python (\S+))?", unfit.fix)
    if offered:
        other = f"cp{offered[3].replace('.', '')}" if offered[3] else tag
        assert node_incompatibility({"torch": offered[1]}, node, other) is None


far_apart = st.sets(
    st.sampled_from(["3.5", "3.7", "5.2", "7.0", "8.6", "12.0", "12.1"]), min_size=2
)


@many
@given(
    st.sampled_from(VERSIONS), far_apart, st.sampled_from(["470.57.02", "580.95.05", None]), pins
)
def test_every_offered_set_of_sms_has_a_toolkit(
    version: str, sms: set[str], driver: str | None, pin: str | None
) -> None:
    node, versions = gpu(*sorted(sms), driver=driver), {"torch": version}
    unfit = node_incompatibility(versions, node, "cp311", pin=pin)
    fix = unfit.fix if unfit else ""
    offered = re.search(r"et fleetbuild_sms for it to SM ([\d., and]+), which", fix)
    if offered:
        fewer = node.model_copy(update={"sms": tuple(re.findall(r"\d+\.\d", offered[1]))})
        assert node_incompatibility(versions, fewer, "cp311", pin=pin) is None


def test_fewer_sms_are_not_offered_if_torch_supports_none_of_them() -> None:
    """The next plan would be blocked just so."""
    unfit = problem({"torch": "2.0.1"}, gpu("3.5", "12.0"), pin="13.0")
    assert "fleetbuild_sms" not in unfit.fix
    assert "Set fleetbuild_sms for the node to SM 12.0" in problem(TORCH, gpu("3.5", "12.0")).fix


# The fleet of the scenarios


def test_the_captured_fleet_gets_the_expected_toolkits() -> None:
    fleet = seed_fleet()
    told = {}
    for name, known in fleet.items():
        tag = known.pythons[0].tag
        unfit = node_incompatibility(TORCH, known, tag)
        if unfit or not known.sms:
            told[name] = unfit.reason if unfit else "cpu"
            continue
        choice = choose_toolkit(TORCH, known.sms, tag, [known], fleet)
        assert isinstance(choice, Toolkit)
        told[name] = f"{choice.version} {choice.evidence}"
    assert told == {
        "clx-a100-t4": "12.6 released",
        "clx-cpu": "cpu",
        "e5v2-a": "12.6 released",
        "e5v2-b": "12.6 released",
        "g2": "cpu",
        "g3": "cpu",
        "hsw-3090": "12.6 released",
        "hsw-k40": "SM 3.5 needs CUDA 11.8 or older; torch 2.13 needs CUDA 12.3 or newer.",
        "hsw-nodriver": "cpu",
        "skx-h100": "13.0 released",
        "skx-t4": "12.6 released",
        "zen3-a40": "12.6 released",
        "zen3-l40s": "12.6 released",
    }


# Jetsons


def test_a_jetson_gets_the_toolkit_that_is_on_it_and_no_other() -> None:
    orin = gpu("8.7", driver=None, rung="armv8.2", cuda="12.6.68")
    choice = chosen(TORCH, orin)
    assert (choice.version, choice.evidence, choice.installed_on) == ("12.6", "buildable", ("n0",))
    assert choice.why.endswith("; on a Jetson, CUDA comes with JetPack.")
    bare = gpu("8.7", driver=None, rung="armv8.2")
    assert chosen(TORCH, bare).installed_on == ()
    plan = planned({"a": bare}, packages=[package("torch", "2.13.0")])
    (said,) = plan.groups[0].wheels[0].requires.to_supply
    assert "apt install nvidia-jetpack" in said


@pytest.mark.parametrize(
    ("sm", "cuda", "reason", "fix"),
    [
        (
            "7.2",
            "11.4.315",
            "A Jetson runs only the CUDA of its JetPack, here 11.4; torch 2.13 needs CUDA 12.3 or",
            "Update JetPack to one with CUDA 12.3 or newer, if the module supports one; torch 2.8",
        ),
        (
            "11.0",
            "12.6.68",
            "A Jetson runs only the CUDA of its JetPack, here 12.6; SM 11.0 needs CUDA 13.0 or",
            "Update JetPack to one with CUDA 13.0 or newer, if the module supports one",
        ),
    ],
)
def test_a_jetson_with_an_unsuitable_jetpack_is_blocked(
    sm: str, cuda: str, reason: str, fix: str
) -> None:
    unfit = problem(TORCH, gpu(sm, driver=None, rung="armv8.2", cuda=cuda))
    assert unfit.reason.startswith(reason)
    assert unfit.fix.startswith(fix)


def test_jetsons_of_one_group_have_one_jetpack() -> None:
    old, new = (
        gpu("8.7", driver=None, rung="armv8.2", cuda=cuda) for cuda in ("12.2.140", "12.6.68")
    )
    unfit = choose({"torch": "2.11.0"}, old, new)
    assert isinstance(unfit, Problem)
    assert "here 12.2" in unfit.reason
    assert "here 12.6" in unfit.reason
    assert "install the same JetPack on all of them" in unfit.fix.lower().replace(
        "jetpack", "JetPack"
    )
