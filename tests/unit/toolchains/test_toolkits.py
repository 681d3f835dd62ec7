"""Which toolkit a group is built with, and the sentences if no toolkit fits."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from fleetbuild.hardware.gpus import SMS
from fleetbuild.models import Facts
from fleetbuild.models.problem import Problem
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import TOOLKITS, compiles_for, minor, serves
from fleetbuild.toolchains.nvidia import toolkit_archives, toolkit_requirements
from fleetbuild.toolchains.pytorch import EVIDENCE, TORCHES, Torch, find_torch
from fleetbuild.toolchains.toolkits import (
    Toolkit,
    choose_toolkit,
    compiler_needed,
    node_incompatibility,
    package_incompatibility,
)
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


OLD_GCC, BOTH_GCCS = {"gcc": ("9.4.0",)}, {"gcc": ("9.4.0",), "gcc-12": ("12.3.0",)}
KEPLER = gpu("3.5", driver="470.256.02")
DRIVER_550 = {"driver": "550.54.15"}
# Packages, members, options; then the version, its evidence, where it is installed, words of why.
CHOICES: dict[str, tuple[Mapping[str, str], list[Facts], dict[str, str], tuple[object, ...]]] = {
    "an installed one before one to be supplied": (
        TORCH, [gpu("8.6", cuda="12.6")], {}, ("12.6", "released", ("n0",))),
    "what nobody built with comes last even if it is installed": (
        TORCH, [gpu("8.6", **DRIVER_550, cuda="12.4")], {},
        ("12.6", "released", (), "CUDA 12.4 on n0 is not taken: no torch 2.13 was built with it")),
    "unless it is pinned": (
        TORCH, [gpu("8.6", **DRIVER_550, cuda="12.4")], {"pin": "12.4"},
        ("12.4", "buildable", ("n0",))),
    "a released combination before one that merely can be built": (
        TORCH, [gpu("8.6", cuda="12.6.85 12.9 13.3")], {},
        ("12.6", "released", ("n0",), "PyTorch releases torch 2.13 with CUDA 12.6.")),
    "what nobody built, as near as possible to a release": (
        {"torch": "2.6.0"}, [gpu("10.0")], {}, ("12.8", "buildable", ())),
    "the CUDA 12 that pytorch names, where the driver runs no 13": (
        {"torch": "2.15.0"}, [gpu("8.6", **DRIVER_550)], {}, ("12.6", "reported", ())),
    "the newest installed released one": (
        TORCH, [gpu("8.6", cuda="12.6 13.0 13.2")], {}, ("13.0", "released", ("n0",))),
    "the newest installed one of another torch": (
        {"torch": "2.14.1"}, [gpu("8.6", cuda="12.6 13.0 13.2")], {},
        ("13.2", "released", ("n0",))),
    "an experiment": (
        TORCH, [gpu("8.6", cuda="13.2 13.3")], {},
        ("13.2", "released", ("n0",), "torch 2.13 with CUDA 13.2 as an experiment.")),
    "without an installed one the newest released one": (
        TORCH, [gpu("8.6")], {},
        ("13.0", "released", (), "No builder has a matching CUDA toolkit; PyTorch releases")),
    "a pinned one as it is": (
        TORCH, [gpu("8.6", cuda="13.0")], {"pin": "12.8.1"},
        ("12.8", "buildable", (), "asks for CUDA 12.8; no builder has CUDA 12.8; ")),
    "the oldest driver counts": (
        TORCH, [gpu("8.6", cuda="12.6 13.0"), gpu("8.6", driver="535.183.01")], {},
        ("12.6", "released", ("n0",))),
    "an unknown driver sets no limit and is mentioned": (
        TORCH, [gpu("8.6", driver=None, cuda="13.0")], {},
        ("13.0", "released", ("n0",), "the driver of 1 member is unknown and was not checked.")),
    "a builder with a fitting compiler first": (
        TORCH, [gpu("8.6", cuda="13.0", tools=OLD_GCC), gpu("8.6", cuda="12.6")], {},
        ("12.6", "released", ("n1",))),
    "a gcc beside the default one fits": (
        TORCH, [gpu("8.6", cuda="13.0", tools=OLD_GCC), gpu("8.6", cuda="12.6", tools=BOTH_GCCS)],
        {}, ("12.6", "released", ("n1",))),
    "an installed one without a suitable gcc before an absent one": (
        TORCH, [gpu("8.6", cuda="13.0", tools=OLD_GCC)], {},
        ("13.0", "released", ("n0",), "the compiler there is not gcc 11.3 to below 16")),
    "several sms share one": (
        {"torch": "2.0.1"}, [gpu("3.5", "9.0", driver="470.256.02")], {"tag": "cp310"},
        ("11.8", "released", ())),
    "a reported combination is named as such": (
        {"torch": "2.0.1"}, [gpu("3.5", driver="470.256.02", cuda="11.4")], {"tag": "cp310"},
        ("11.4", "reported", ("n0",), "torch 2.0 with CUDA 11.4 is reported to work on SM 3.5")),
    "a release without code for the sm decides nothing": (
        {"torch": "2.5.1"}, [KEPLER], {},
        ("11.8", "buildable", (), "PyTorch's own torch 2.5 with CUDA 11.8 has no code for SM 3.5")),
    "only the wheels for 12.6 have code for Volta": (
        {"torch": "2.11.0"}, [gpu("7.0")], {}, ("12.6", "released", ())),
    "a torch newer than the table": (
        {"torch": "2.99.0"}, [gpu("8.6", cuda="13.0")], {},
        ("13.0", "buildable", ("n0",), f"the newest known version, {list(TORCHES)[-1]}")),
    "without torch only sms and drivers limit it": (
        {"llama-cpp-python": "0.3.2"},
        [gpu("8.6", driver="535.183.01", cuda="11.8", tools={"gcc": ("11.4.0",)})], {},
        ("11.8", "buildable", ("n0",), "CUDA 11.8 compiles for SM 8.6.")),
    "without torch the newest one": (
        {"hnswlib": "0.8.0"}, [gpu("8.6")], {}, (list(TOOLKITS)[-1], "buildable", ())),
    "one builder with an older glibc is enough": (
        {"torch": "2.7.1"},
        [gpu("8.6", cuda="12.6", libc="2.41"), gpu("8.6", cuda="12.6", libc="2.40")], {},
        ("12.6", "released", ("n1",))),
    "one that can be fetched before a newer one to be supplied": (
        {"hnswlib": "0.8.0"}, [gpu("6.1")], {}, ("12.8", "buildable", ())),
    "but not before an installed one": (
        {"hnswlib": "0.8.0"}, [gpu("6.1", cuda="12.9")], {}, ("12.9", "buildable", ("n0",))),
    "pytorch releases nothing for Turing on Arm": (
        TORCH, [gpu("7.5", driver="535.183.01", rung="armv8.2")], {}, ("12.6", "buildable", ())),
    "a torch that a newer toolkit breaks": (
        {"torch": "2.2.2"}, [gpu("8.6", cuda="12.4")], {}, ("11.8", "released", ())),
    "Volta gets a new torch from source": (
        {"torch": "2.15.0"}, [gpu("7.0")], {},
        ("12.6", "reported", (), "is reported to work on SM 7.0, for which PyTorch's own")),
    "Pascal gets a new torch from source": (
        {"torch": "2.15.0"}, [gpu("6.1")], {}, ("12.6", "reported", (), "no code")),
    "a build that conda-forge publishes": (
        {"torch": "2.12.1"}, [gpu("8.6", cuda="12.9")], {},
        ("12.9", "reported", ("n0",), "with CUDA 12.9, and conda-forge does.")),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_the_toolkit_of_a_group_is(case: str) -> None:
    versions, members, options, (version, evidence, installed, *why) = CHOICES[case]
    choice = chosen(versions, *members, **options)
    assert (choice.version, choice.evidence, choice.installed_on) == (version, evidence, installed)
    assert all(str(words) in choice.why for words in why), choice.why


@pytest.mark.parametrize("torch", ["2.12.1", "2.13.0"])
@pytest.mark.parametrize("cuda", ["12.1", "12.2"])
def test_torch_in_cxx20_is_not_built_with_headers_that_do_not_compile_as_such(
    torch: str, cuda: str
) -> None:
    unfit = problem({"torch": torch}, gpu("8.6", cuda=cuda), pin=cuda)
    assert f"torch {torch[:4]} needs CUDA 12.3 or newer" in unfit.reason
    assert chosen({"torch": "2.11.0"}, gpu("8.6", cuda=cuda), pin=cuda).version == cuda


def test_builders_are_named_in_their_order() -> None:
    builders = {"z": gpu(cuda="13.0"), "a": gpu(cuda="13.0 12.6"), "m": gpu()}
    choice = choose_toolkit(TORCH, ["8.6"], "cp311", [gpu("8.6")], builders)
    assert isinstance(choice, Toolkit)
    assert choice.installed_on == ("z", "a")
    assert choice.why.startswith("CUDA 13.0 is installed on z and a; ")


def test_toolkits_that_accept_the_installed_compiler_are_listed() -> None:
    node = gpu("8.6", **DRIVER_550, cuda="12.4", tools={"gcc": ("14.2.0",)})
    choice = chosen(TORCH, node)
    assert (choice.version, choice.alternatives) == ("12.6", ("12.8", "12.9"))
    assert chosen(TORCH, node, pin="12.4").alternatives == ("12.8", "12.9")
    assert chosen(TORCH, gpu("8.6", cuda="13.0")).alternatives == ()


def test_a_builder_without_a_compiler_gets_a_suitable_one() -> None:
    builder = facts(sms=("8.6",), driver="580.95.05", toolchain={"nvcc": ("13.0",)})
    assert "outside" not in chosen(TORCH, builder).why


@pytest.mark.parametrize(
    ("torch", "cuda", "libc", "version"),
    [
        ("2.14.1", "", "2.36", "13.2"),  # the newest released one compiles with any glibc
        ("2.14.1", "", "2.42", "13.2"),
        ("2.11.0", "12.6", "2.36", "12.6"),
        ("2.11.0", "12.6", "2.41", "13.0"),  # before the installed one, which does not
        ("2.11.0", "12.6", "2.42", "12.6"),
    ],
)
def test_a_toolkit_that_compiles_with_the_glibc_comes_first(
    torch: str, cuda: str, libc: str, version: str
) -> None:
    here = gpu("8.6", cuda=cuda, driver=None, libc=libc)
    assert chosen({"torch": torch}, here).version == version


def test_names_of_packages_are_normalised() -> None:
    assert isinstance(choose({"Torch": "2.13.0"}, gpu("3.5")), Problem)


def test_a_group_without_a_common_toolkit_is_offered_fewer_sms() -> None:
    choice = choose({"hnswlib": "0.8.0"}, gpu("3.5"), gpu("12.0"))
    assert choice == Problem(
        reason="SM 3.5 needs CUDA 11.8 or older; SM 12.0 needs CUDA 12.8 or newer.",
        fix="Set fleetbuild_sms for the node to SM 12.0, which one toolkit compiles for.",
    )


# Nodes for which nothing will do


COMPANIONS = {**TORCH, "torchvision": "0.28.0", "torchaudio": "2.11.0"}
OLD_DRIVER = gpu("3.5", driver="418.39")
BOTH_PYTHONS = facts(pythons=(python("3.9.2"), python("3.12.1", "/usr/bin/python3.12")))
NEWEST = list(TOOLKITS)[-1]
CUDA_114 = f"driver {TOOLKITS['11.4'].driver} or newer, which CUDA 11.4 needs."
# Packages, a node, options; then words of the reason, and words of the fix.
PROBLEMS: dict[str, tuple[Mapping[str, str], Facts, dict[str, str], str, str]] = {
    "a Kepler GPU is offered an older torch": (
        TORCH, KEPLER, {"tag": "cp310"},
        "SM 3.5 needs CUDA 11.8 or older; torch 2.13 needs CUDA 12.3 or newer.",
        "torch 2.0.1 with CUDA 11.7 or 11.8 is the newest that PyTorch releases, 11.4 is reported"),
    "the companions of the nearest torch": (
        COMPANIONS, KEPLER, {"tag": "cp310"}, "",
        "torch 2.0.1 (torchvision 0.15.2 and torchaudio 2.0.2) with CUDA 11.7 or 11.8 "),
    "SM 3.7 is offered a newer torch than SM 3.5": (
        TORCH, gpu("3.7", driver="470.256.02"), {}, "", "torch 2.7.1 with CUDA 11.8 is the newest"),
    "a reported combination": (
        TORCH, gpu("3.5", driver="440.33.01"), {"tag": "cp310"}, "",
        "torch 1.12.1 with CUDA 10.2 is the newest"),
    "a driver that is too old": (
        TORCH, gpu("8.6", driver="470.256.02"), {},
        "Driver 470.256.02 runs CUDA 11.8 or older; torch 2.13 needs CUDA 12.3 or newer.",
        "Update its driver to 525.60.13 or newer, which CUDA 12.3 needs; torch 2.7.1 with"),
    "a driver older than all toolkits": (
        {"hnswlib": "0.8.0"}, gpu("3.0", driver="390.157"), {},
        "Driver 390.157 runs CUDA 10.1 or older; fleetbuild supports CUDA 10.2 or newer.",
        "Update its driver to 440.33 or newer, which CUDA 10.2 needs."),
    "sms without a common toolkit": (
        TORCH, gpu("3.7", "8.6", "12.0"), {}, "SM 12.0 needs CUDA 12.8 or newer; torch 2.13 needs",
        "Set fleetbuild_sms for the node to SM 8.6 and 12.0, which one toolkit compiles for."),
    "sms with the same limit share a sentence": (
        TORCH, gpu("3.5", "3.7"), {"tag": "cp310"}, "SM 3.5 and 3.7 need CUDA 11.8 or older; ", ""),
    "an sm without any toolkit": (
        TORCH, gpu("8.6", "99.0"), {},
        f"No CUDA toolkit from 10.2 to {NEWEST} compiles for SM 99.0.",
        "Update fleetbuild, or set fleetbuild_sms for the node to supported SMs."),
    "an sm that torch does not support": (
        {"torch": "2.6.0"}, gpu("12.0"), {}, "torch 2.6 does not support SM 12.0.",
        "torch 2.15.0 with CUDA 13.0 or 13.2 is the newest that"),
    "an sm that needs CUDA 13": (
        {"torch": "2.8.0"}, gpu("11.0"), {}, "torch 2.8 supports CUDA 12.9 or older", ""),
    "a toolkit that breaks a torch": (
        {"torch": "2.4.1"}, gpu("8.6"), {"pin": "12.9"},
        "CUDA 12.8 or older (it links nvToolsExt, which CUDA 12.9 does not have); ", ""),
    "without known builds a torch that should build": (
        {"torch": "2.0.1"}, gpu("8.7", rung="armv8.2"), {}, "torch 2.0 does not support SM 8.7.",
        "is the newest that should build, but no such build is known"),
    "a pin that does not fit": (
        TORCH, gpu("8.6"), {"pin": "11.8"},
        "fleetbuild.yml asks for CUDA 11.8; torch 2.13 needs CUDA 12.3 or newer.",
        "Take cuda: out of fleetbuild.yml or set it to 13.0"),
    "an unknown pin": (
        TORCH, gpu("8.6"), {"pin": "12.7"},
        f"fleetbuild.yml asks for CUDA 12.7; supported are 10.2 to {NEWEST}.",
        "Take cuda: out of fleetbuild.yml or set it to 13.0"),
    "a pin that the driver does not run": (
        TORCH, gpu("8.6", **DRIVER_550), {"pin": "13.0"},
        "Driver 550.54.15 runs CUDA 12.9 or older; fleetbuild.yml asks for CUDA 13.0.",
        "or set it to 12.6, or update its driver to 580 or newer, which CUDA 13.0 needs."),
    "a pin and a driver that must both change": (
        TORCH, gpu("12.0", driver="470.256.02"), {"pin": "12.6"},
        "fleetbuild.yml asks for CUDA 12.6; SM 12.0 needs CUDA 12.8 or newer.",
        "Take cuda: out of fleetbuild.yml and update its driver to 525.60.13 or newer, which"),
    "an old driver where a newer one would allow a toolkit": (
        TORCH, OLD_DRIVER, {"tag": "cp310"}, "",
        f"under a release name of their own and with {CUDA_114}"),
    "a pin and an old driver": (
        TORCH, OLD_DRIVER, {"tag": "cp310", "pin": "12.6"}, "",
        f"under a release name of their own, without cuda: and with {CUDA_114}"),
    "a pin that excludes an old GPU": (
        TORCH, KEPLER, {"pin": "12.6"}, "", "under a release name of their own and without cuda:."),
    "an unknown pin that excludes an old GPU": (
        TORCH, KEPLER, {"pin": "99.9"}, "", "under a release name of their own and without cuda:."),
    "a Python and a driver that must both change": (
        TORCH, gpu("8.6", driver="418.39"), {"tag": "cp39"},
        "torch 2.13 is for Python 3.10 to 3.14, not for 3.9; driver 418.39 runs CUDA 10.1 or older",
        "Set fleetbuild_python to /usr/bin/python3 (3.11.2), which is installed, and update its"),
    "a Python that torch does not support": (
        TORCH, BOTH_PYTHONS, {"tag": "cp39"},
        "torch 2.13 is for Python 3.10 to 3.14, not for 3.9.",
        "(3.12.1), which is installed; take torch 2.8.0, the newest for Python 3.9. Plan such"),
    "a Python to install": (
        TORCH, facts(pythons=(python("3.6.8"),)), {"tag": "cp36"}, "",
        "Install Python 3.10 to 3.14 and name it in fleetbuild_python."),
    "a free-threaded Python is an abi of its own": (
        TORCH, facts(), {"tag": "cp313t"}, "not for the free-threaded 3.13.", ""),
    "a Python and an sm without a common torch": (
        TORCH, KEPLER, {"tag": "cp312"}, "",
        "torch 2.0.1 for Python 3.8 to 3.11 with CUDA 11.7 or 11.8 is the newest that"),
    "a Jetson whose JetPack is too old for torch": (
        TORCH, gpu("7.2", driver=None, rung="armv8.2", cuda="11.4.315"), {},
        "A Jetson runs only the CUDA of its JetPack, here 11.4; torch 2.13 needs CUDA 12.3 or",
        "Update JetPack to one with CUDA 12.3 or newer, if the module supports one; torch 2.8"),
    "a Jetson whose JetPack is too old for its GPU": (
        TORCH, gpu("11.0", driver=None, rung="armv8.2", cuda="12.6.68"), {},
        "A Jetson runs only the CUDA of its JetPack, here 12.6; SM 11.0 needs CUDA 13.0 or",
        "Update JetPack to one with CUDA 13.0 or newer, if the module supports one"),
}  # fmt: skip


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_node_that_no_toolkit_serves_gets_a_reason_and_a_fix(case: str) -> None:
    versions, node, options, reason, fix = PROBLEMS[case]
    unfit = problem(versions, node, **options)
    assert reason in unfit.reason
    assert fix in unfit.fix


def test_a_cpu_node_needs_python_alone() -> None:
    assert node_incompatibility(TORCH, facts(), "cp311") is None
    assert node_incompatibility(TORCH, facts(), "cp311", pin="11.8") is None
    assert node_incompatibility({"hnswlib": "0.8.0"}, facts(), "cp36") is None


def test_nodes_that_can_be_built_for_have_no_problem() -> None:
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
