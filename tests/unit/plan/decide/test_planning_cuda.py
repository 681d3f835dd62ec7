"""CUDA in a plan: toolkits by group, builders that have them, nodes that are blocked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.cli.show.plan import plan_ending
from fleetbuild.hardware.gpus import SMS
from fleetbuild.models import Config, Gpu
from fleetbuild.plan.decide.requests import dependency_request, toolkit_request
from fleetbuild.plan.decide.resolution import Resolution, Source
from fleetbuild.plan.decide.wheels.ids import artifact_key
from fleetbuild.plan.explain import explain_node
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import compiles_for, serves
from fleetbuild.toolchains.nvidia import toolkit_archives
from fleetbuild.toolchains.pytorch import find_torch
from tests.factories.fleets import (
    answers,
    drafted,
    facts,
    locked,
    node,
    package,
    planned,
    python,
    recipe_of,
)
from tests.factories.plans import make_target

KERNELS = package("kernels", "1.0", recipe_of("kernels", "avx", "avx2", more="cuda: true"))
TORCH = package(
    "torch",
    "2.13.0",
    recipe_of(
        "torch",
        "avx",
        "avx2",
        more="cuda: true\nenvironment: {TORCH_CUDA_ARCH_LIST: "
        "\"{{ sms | join(';') if cuda }}\"}\njob_memory_gb: 2\nsm_job_memory_gb: 1",
    ),
)
NVCC_126 = {"gcc": ("12.2.0",), "g++": ("12.2.0",), "nvcc": ("12.6.85",)}


def gpu(*sms, driver="580.65.06", **more):
    gpus = tuple(Gpu(name="a GPU", sm=sm) for sm in sms)
    return facts(sms=sms, gpus=gpus, driver=driver, **more)


def gpu_or_none(sms, driver, rung, nvcc, version):
    """A node with these GPUs, or none."""
    tools = {"gcc": ("12.2.0",), "g++": ("12.2.0",), "nvcc": nvcc}
    more = {"toolchain": tools, "pythons": (python(version),)}
    return gpu(*sorted(sms), driver=driver, rung=rung, **more) if sms else facts(rung, **more)


def wheel_of(fleet, packages=(TORCH,), **more):
    (group,) = planned(fleet, packages=packages, **more).groups
    return group.wheels[0]


def test_without_an_installed_toolkit_the_newest_released_one_is_required():
    wheel = wheel_of({"a": gpu("8.6")})
    assert wheel.cuda == "13.0"
    assert wheel.evidence == "released"
    assert wheel.wheel_version == "2.13.0+cu130.sm86.avx2"
    assert wheel.environment["TORCH_CUDA_ARCH_LIST"] == "8.6"
    assert wheel.requires.cuda == "13.0 (to be supplied)"
    assert "a has no CUDA toolkit 13.0" in wheel.requires.to_supply[0]


def test_cuda_ptx_adds_ptx_of_the_newest_sm_of_a_group():
    fleet, packages = {"a": gpu("8.6", "9.0")}, [package("torch", "2.13.0")]
    plain = wheel_of(fleet, packages)
    wheel = wheel_of(fleet, packages, config=Config(cuda_ptx=True))
    assert (plain.target.ptx, wheel.target.ptx) == (None, "9.0")
    assert wheel.environment["TORCH_CUDA_ARCH_LIST"] == "8.6;9.0+PTX"
    assert wheel.wheel_version == "2.13.0+cu130.sm86.sm90.ptx.avx2"
    assert plain.wheel_version == "2.13.0+cu130.sm86.sm90.avx2"


def test_the_key_of_a_wheel_with_ptx_is_its_own_even_if_its_recipe_ignores_ptx():
    keys = [
        artifact_key(
            recipe=KERNELS.recipe,
            package="kernels",
            version="1.0",
            target=make_target(sms=("8.6",), ptx=ptx),
            cuda="13.0",
            source_sha256="5" * 64,
            build_lock=(),
        )
        for ptx in (None, "8.6")
    ]
    assert keys[0] != keys[1]


def test_cuda_ptx_changes_nothing_without_a_gpu():
    assert wheel_of({"a": facts()}) == wheel_of({"a": facts()}, config=Config(cuda_ptx=True))


@pytest.mark.parametrize(
    ("sms", "driver", "cuda", "variant"),
    [
        (("8.6",), "580.65.06", None, "cu130"),
        (("8.6",), "550.54.15", "12.6", "cu126"),
        (("3.5",), "470.82.01", "11.4", None),  # PyTorch releases nothing with it
        ((), None, None, "cpu"),
    ],
)
def test_pytorchs_index_is_the_one_for_the_cuda_of_the_group(sms, driver, cuda, variant):
    fleet = {"a": gpu(*sms, driver=driver) if sms else facts()}
    packages = [package("torch", "2.0.1" if sms == ("3.5",) else "2.13.0")]
    asked = [
        dependency_request(group, packages).pytorch
        for index in ((), ("pytorch",))
        for group in drafted(fleet, packages, config=Config(index=index, cuda=cuda)).groups
    ]
    assert asked == [None, variant]


def test_a_torch_without_cudnn_is_a_warning():
    tools = {"gcc": ("10.2.1",), "g++": ("10.2.1",), "nvcc": ("11.4.152",), "cudnn": ("8.7.0",)}
    fleet = {"k40": gpu("3.5", driver="470.82.01", toolchain=tools)}
    made = planned(fleet, packages=[package("torch", "2.0.1")])
    assert made.warnings[-1] == (
        "torch for sm35-avx2-cp311 is built without cuDNN: no cuDNN wheel exists for CUDA "
        "11.4 on x86_64 and SM 3.5: convolutions and recurrent networks are slower on these GPUs. "
        "The cuDNN of k40 is not used."
    )
    with_it = planned({"a": gpu("8.6")}, packages=[package("torch", "2.13.0")])
    assert not [warning for warning in with_it.warnings if "cuDNN" in warning]


def test_builds_that_nobody_timed_have_no_shown_estimate():
    def wheel(name, version, fleet):
        return planned(fleet, packages=[package(name, version)]).groups[0].wheels[0]

    one = wheel("hnswlib", "0.8.0", {"a": facts(cpus=2)})
    assert (one.measured, one.minutes) == (True, 0.8)
    assert wheel("hnswlib", "0.8.0", {"a": facts(cpus=64)}).minutes == 0.8  # it is one file
    assert not wheel("torch", "2.13.0", {"a": facts()}).measured
    assert not wheel("torch", "2.13.0", {"a": gpu("8.6")}).measured


def test_a_recipes_oldest_cuda_is_respected():
    llama = package("llama-cpp-python", "0.3.16")
    fleet = {"new": gpu("8.6", toolchain=NVCC_126 | {"nvcc": ("11.5.119", "12.6.85")})}
    assert wheel_of(fleet, packages=[llama]).cuda == "12.6"
    fleet = {"old": gpu("8.6", toolchain=NVCC_126 | {"nvcc": ("11.5.119",)})}
    wheel = wheel_of(fleet, packages=[llama])
    assert wheel.cuda != "11.5"
    assert "to be supplied" in wheel.requires.cuda
    node = planned({"old": gpu("8.6", driver="440.33.01")}, packages=[llama]).nodes["old"]
    assert node.state == "blocked"
    assert "llama-cpp-python needs CUDA 11.7 or newer" in node.reason


def test_a_build_in_an_image_requires_tools_of_the_image_and_not_of_the_node():
    image = "registry.lab/build:7"
    config = Config.model_validate({"build": {"image": image}})
    old = gpu("8.6", toolchain={"gcc": ("5.4.0",), "g++": ("5.4.0",)})
    requires = wheel_of({"a": old}, config=config, facts_source="cluster").requires
    assert requires.to_supply == ()
    assert requires.cuda == f"13.0 (in {image})"
    compiler, toolkit = requires.in_image
    assert compiler.startswith(f"{image} must contain gcc")
    assert "its gcc 5.4.0 " in compiler
    assert toolkit.startswith(f"{image} must contain the CUDA toolkit 13.0, with nvcc")
    plan = planned({"a": old}, packages=(TORCH,), config=config, facts_source="cluster")
    ending = plan_ending(plan)
    assert toolkit in ending
    assert not any("to be supplied" in line for line in ending)
    assert wheel_of({"a": old}, config=config).requires.in_image == ()
    small = old.model_copy(update={"disk_gb": 0.1})
    (room,) = wheel_of({"a": small}, config=config, facts_source="cluster").requires.to_supply
    assert "GB free" in room


FLASH = (package("torch", "2.13.0"), package("flash-attn", "2.8.3"))


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (facts(), "this node has no GPU to plan for"),
        (gpu("6.0"), "this node has only SM 6.0"),
        (gpu("7.0", "7.5"), "this node has only SM 7.0 and 7.5"),
    ],
)
def test_a_package_for_newer_gpus_blocks_a_node_without_one(known, says):
    plan = planned({"a": known, "b": gpu("8.6")}, packages=FLASH)
    blocked = plan.nodes["a"]
    assert blocked.state == "blocked"
    assert blocked.reason == f"flash-attn needs a GPU of SM 8.0 or newer, and {says}."
    assert "without flash-attn" in blocked.fix
    assert plan.nodes["b"].state == "ok"


def test_older_gpus_beside_newer_ones_get_no_code_and_a_warning():
    plan = planned({"a": gpu("7.5", "8.0")}, packages=FLASH)
    (group,) = plan.groups
    assert [wheel.wheel_version for wheel in group.wheels] == [
        "2.13.0+cu130.sm75.sm80.avx2",
        "2.8.3+cu130.sm80.avx2",
    ]
    assert group.wheels[1].environment["TORCH_CUDA_ARCH_LIST"] == "8.0"
    assert plan.nodes["a"].warnings == (
        "The wheel of flash-attn has no code for this node's GPUs of SM 7.5.",
    )


def test_libraries_that_no_wheel_contains_are_a_warning():
    torch = package("torch", "2.0.1")
    old = gpu("3.5", driver="470.82.01", toolchain={**NVCC_126, "nvcc": ("11.4.120",)})
    arm = facts("armv8.2", pythons=(python("3.10.2"),))
    plan = planned(
        {"a": old.model_copy(update={"pythons": arm.pythons}), "b": arm}, packages=[torch]
    )
    needs = {group.name: group.wheels[0].requires.libraries for group in plan.groups}
    assert needs == {
        "cpu-armv8.2-cp310": {"openblas": "OpenBLAS (Debian: libopenblas0, others: openblas)"},
        "sm35-avx2-cp310": {"cuda": "the libraries of CUDA 11.4"},
    }
    assert (
        "torch for sm35-avx2-cp310: every node needs the libraries of CUDA 11.4, which no wheel "
        "brings."
    ) in plan.warnings
    story = explain_node(plan, old, "a")
    assert "    on every node: the libraries of CUDA 11.4, which no wheel brings" in story


def test_explain_shows_that_the_inventory_sets_the_sms():
    known = gpu("8.6", "12.0")
    plan = planned({"a": known}, packages=(TORCH,), nodes=(node("a", sms=("8.6",)),))
    story = explain_node(plan, known, "a")
    assert "  GPU code: for SM 8.6, as the inventory says" in story
    assert any(line.startswith("    CUDA 13.0 (to be supplied): No builder has") for line in story)


def test_an_experimental_python_is_a_warning():
    fleet = {"a": facts(pythons=(python("3.15.0"),)), "b": facts(pythons=(python("3.13.1"),))}
    (warning,) = planned(fleet, packages=(TORCH,)).warnings
    assert warning == (
        "PyTorch calls torch 2.13 for Python 3.15 experimental: cpu-avx2-cp315 may not build. "
        "Choose an older Python with python: or fleetbuild_python."
    )


def test_a_suitable_installed_toolkit_is_used_and_its_node_builds():
    fleet = {"a": gpu("8.6", memory_gb=99), "b": gpu("8.6", toolchain=NVCC_126)}
    wheel = wheel_of(fleet)
    assert wheel.cuda == "12.6"
    assert wheel.built_on == "b"
    assert wheel.requires.cuda == "12.6 (present)"
    assert wheel.requires.to_supply == ()


def test_a_toolkit_on_a_machine_with_a_newer_libc_does_not_count():
    fleet = {"a": gpu("8.6", libc="2.28"), "b": gpu("8.6", libc="2.36", toolchain=NVCC_126)}
    wheel = wheel_of(fleet)
    assert (wheel.cuda, wheel.built_on) == ("13.0", "a")


def test_an_impossible_pin_blocks_with_reason_and_fix():
    plan = planned({"a": gpu("12.0")}, packages=[TORCH], config=Config(cuda="12.6"))
    assert plan.nodes["a"].state == "blocked"
    assert "12.6" in (plan.nodes["a"].reason or "")
    assert plan.nodes["a"].fix


def test_a_node_that_no_toolkit_serves_is_blocked_and_the_rest_goes_on():
    fleet = {"k40": gpu("3.5", driver="470.256.02"), "new": gpu("8.6"), "plain": facts()}
    plan = planned(fleet, packages=[TORCH])
    assert plan.nodes["k40"].state == "blocked"
    assert "SM 3.5 needs CUDA 11.8 or older" in (plan.nodes["k40"].reason or "")
    assert "2.0.1" in (plan.nodes["k40"].reason or "") + (plan.nodes["k40"].fix or "")
    assert [group.name for group in plan.groups] == ["cpu-avx2-cp311", "sm86-avx2-cp311"]


def test_an_override_of_the_sms_counts_for_the_toolkit():
    nodes = [node("k40", sms=())]
    plan = planned({"k40": gpu("3.5")}, nodes=nodes, packages=[TORCH])
    assert plan.nodes["k40"].group == "cpu-avx2-cp311"


def test_incompatible_companions_block_every_node():
    vision = package("torchvision", "0.20.0", recipe_of("torchvision", "avx2"))
    plan = planned({"a": facts(), "b": gpu("8.6")}, packages=[TORCH, vision])
    assert {each.state for each in plan.nodes.values()} == {"blocked"}
    assert "torchvision" in (plan.nodes["a"].reason or "")


def test_groups_whose_toolkits_differ_do_not_share_a_wheel():
    fleet = {
        "a": gpu("8.6", rung="avx"),
        "b": gpu("8.6", rung="avx2", toolchain=NVCC_126),
    }
    low = package("kernels", "1.0", recipe_of("kernels", "avx", more="cuda: true"))
    plan = planned(fleet, packages=[low, TORCH])
    wheels = {group.name: group.wheels[0] for group in plan.groups}
    assert wheels["sm86-avx-cp311"].cuda != wheels["sm86-avx2-cp311"].cuda
    assert plan.summary.wheels_to_build == 4


def test_memory_for_a_job_grows_with_the_sms():
    none, one = wheel_of({"a": facts()}), wheel_of({"a": gpu("8.6")})
    four = wheel_of({"a": gpu("7.5", "8.0", "8.6", "9.0")})
    memory = [wheel.requires.memory_gb for wheel in (none, one, four)]
    assert memory == [2, 3, 6]
    assert one.jobs > four.jobs


@pytest.mark.parametrize("packages", [[KERNELS], [TORCH]])
def test_a_cuda_pin_is_a_warning_if_no_package_uses_cuda(packages):
    plan = planned({"a": facts()}, packages=packages, config=Config(cuda="12.6"))
    assert not [warning for warning in plan.warnings if "no effect" in warning]


NODE = st.builds(
    gpu_or_none,
    sms=st.sets(st.sampled_from(sorted(SMS)), max_size=2),
    driver=st.sampled_from(["470.256.02", "525.60.13", "535.104.05", "550.54.15", "580.65.06"]),
    rung=st.sampled_from(["avx", "avx2", "avx512"]),
    nvcc=st.sampled_from([(), ("11.4.48",), ("12.4.99",), ("12.6.85", "13.0.48")]),
    version=st.sampled_from(["3.8.10", "3.10.12", "3.11.2", "3.14.0"]),
)
FLEETS = st.lists(NODE, min_size=1, max_size=6).map(
    lambda nodes: {f"n{number}": node for number, node in enumerate(nodes)}
)


@given(FLEETS, st.sampled_from(["2.0.1", "2.6.0", "2.13.0", "2.15.0"]))
def test_no_plan_contradicts_the_tables(fleet, version):
    torch = package("torch", version, TORCH.recipe)
    plan = planned(fleet, packages=[torch])
    known = find_torch(version)
    assert known
    for group in plan.groups:
        wheel = group.wheels[0]
        assert known.python.fits(group.target.python)
        assert (wheel.cuda is None) == (group.target.sms == ())
        if wheel.cuda:
            assert all(compiles_for(wheel.cuda, sm) for sm in group.target.sms)
            drivers = [driver for name in group.nodes if (driver := fleet[name].driver)]
            assert all(serves(driver, wheel.cuda) for driver in drivers)
            assert version_key(known.cuda_from) <= version_key(wheel.cuda)
    for result in plan.nodes.values():
        assert result.state == "ok" or (result.reason and result.fix)


WHEELS = package(
    "kernels",
    "1.0",
    recipe_of("kernels", "avx", "avx2", more="cuda: true\ntoolkit_wheels: [cublas]"),
)
NVCC_WHEEL = Resolution(wheels=(locked("nvidia-cuda-nvcc", "13.0.88"),))


def with_toolkit(fleet, answer=NVCC_WHEEL, **more):
    """The plan of the wheel, if the resolver gives this answer for the toolkit's wheels."""
    made = drafted(fleet, [WHEELS], config=more.get("config"))
    source = Source(package="kernels", version="1.0", file=locked("kernels", "1.0", "5"))
    locks = answers(made, fleet, sources=[source])
    requests = [toolkit_request(wheel, fleet) for wheel in made.wheels]
    found = {made.wheels[0].id: answer} if requests[0] else {}
    locks = locks.model_copy(update={"toolkits": found})
    (group,) = planned(fleet, packages=[WHEELS], locks=locks, **more).groups
    return requests, group.wheels[0]


def test_a_missing_toolkit_comes_from_nvidias_wheels_where_they_suffice():
    requests, wheel = with_toolkit({"a": gpu("8.6")}, config=Config(cuda="13.0"))
    assert requests[0].requirements == ("cuda-toolkit[cccl,crt,cudart,nvcc,nvvm,cublas]==13.0.*",)
    assert wheel.requires.cuda == "13.0 (from NVIDIA's wheels)"
    assert wheel.requires.to_supply == ()
    assert [file.name for file in wheel.toolkit_wheels] == ["nvidia-cuda-nvcc"]


def test_wheels_that_a_build_needs_count_as_disk():
    nvcc = locked("nvidia-cuda-nvcc", "13.0.88").model_copy(update={"size": 2_000_000_000})
    fleet = {"a": gpu("8.6", disk_gb=6.5)}
    _, wheel = with_toolkit(fleet, Resolution(wheels=(nvcc,)))
    assert wheel.requires.disk_gb == WHEELS.recipe.disk_gb + 6
    assert wheel.requires.to_supply == (
        "a has 6.5 GB free in its build folder, but the build needs 7 GB: free some space there.",
    )


def test_an_installed_toolkit_is_used_and_is_the_same_wheel():
    nvcc = {"gcc": ("12.2.0",), "g++": ("12.2.0",), "nvcc": ("13.0.88",)}
    requests, installed = with_toolkit({"a": gpu("8.6", toolchain=nvcc)})
    assert requests == [None]
    assert installed.requires.cuda == "13.0 (present)"
    assert installed.toolkit_wheels == ()
    _, from_wheels = with_toolkit({"a": gpu("8.6")}, config=Config(cuda="13.0"))
    assert from_wheels.artifact_key == installed.artifact_key


PARTIAL = {"gcc": ("12.2.0",), "g++": ("12.2.0",), "without-cublas": ("13.0",)}


def test_an_installed_toolkit_without_the_libraries_of_the_recipe_is_not_taken():
    """NVIDIA's cuda-nvcc and cuda-cudart alone have no cuBLAS."""
    fleet = {"a": gpu("8.6", toolchain={**PARTIAL, "nvcc": ("13.0.88",)})}
    requests, wheel = with_toolkit(fleet)
    assert requests[0].requirements == ("cuda-toolkit[cccl,crt,cudart,nvcc,nvvm,cublas]==13.0.*",)
    assert wheel.requires.cuda == "13.0 (from NVIDIA's wheels)"
    assert wheel.requires.to_supply == ()
    assert wheel.cuda_why.startswith("CUDA 13.0 is installed on a;")
    assert wheel.cuda_why.endswith(". The one of a lacks cublas.")


def test_the_library_that_an_installed_toolkit_lacks_is_named_if_no_wheels_serve():
    tools = {**PARTIAL, "nvcc": ("12.4.131",), "without-cublas": ("12.4",)}
    _, wheel = with_toolkit({"a": gpu("8.6", toolchain=tools)}, config=Config(cuda="12.4"))
    assert wheel.requires.cuda == "12.4 (to be supplied)"
    (sentence,) = wheel.requires.to_supply
    assert sentence.startswith("the CUDA toolkit 12.4 of a lacks cublas: install cuda-toolkit-12-4")


@pytest.mark.parametrize(
    ("recipe", "lacking"),
    [
        ("cuda: true", {"without-cublas": ("13.0",)}),  # its libraries are unknown
        ("cuda: true\ntoolkit_wheels: [cublas]", {"without-cufft": ("13.0",)}),
        ("cuda: true\ntoolkit_wheels: [cublas]", {"without-cublas": ("12.4",)}),  # another one
    ],
)
def test_libraries_that_the_recipe_does_not_need_may_be_missing(recipe, lacking):
    kernels = package("kernels", "1.0", recipe_of("kernels", "avx2", more=recipe))
    fleet = {"a": gpu("8.6", toolchain={**NVCC_126, "nvcc": ("13.0.88",), **lacking})}
    wheel = wheel_of(fleet, [kernels])
    assert wheel.requires.cuda == "13.0 (present)"
    assert wheel.requires.to_supply == ()


def test_a_plan_without_a_source_does_not_ask_for_a_toolkit_that_wheels_bring():
    """No index says then whether it has the toolkit's wheels."""
    fleet = {"a": gpu("8.6")}
    made = drafted(fleet, [WHEELS], config=Config(cuda="13.0"))
    unfetched = Resolution(problem="kernels cannot be fetched", offline=True)
    locks = answers(made, fleet, sources=(), closure=unfetched)
    locks = locks.model_copy(update={"toolkits": {made.wheels[0].id: unfetched}})
    plan = planned(fleet, packages=[WHEELS], locks=locks, config=Config(cuda="13.0"))
    assert plan.lock_problem == "kernels cannot be fetched"
    requires = plan.groups[0].wheels[0].requires
    assert requires.to_supply == ()
    assert requires.cuda == "13.0 (from NVIDIA's wheels)"


@pytest.mark.parametrize(
    ("cuda", "fleet"),
    [
        ("12.9", {"a": gpu("8.6")}),  # its wheels have no nvcc
        ("13.0", {"a": gpu("8.7", toolchain={"nvcc": ()})}),  # a Jetson has its own libraries
    ],
)
def test_a_toolkit_without_wheels_is_to_be_supplied(cuda, fleet):
    made = drafted(fleet, [WHEELS], config=Config(cuda=cuda))
    assert [toolkit_request(wheel, fleet) for wheel in made.wheels] in ([None], [])


def test_wheels_that_cannot_be_resolved_leave_the_toolkit_to_be_supplied():
    _, wheel = with_toolkit(
        {"a": gpu("8.6")}, Resolution(problem="No such wheel."), config=Config(cuda="13.0")
    )
    assert wheel.requires.cuda == "13.0 (to be supplied)"
    assert wheel.requires.to_supply


PASCAL = {"a": gpu("6.1", driver="580.65.06")}


def test_a_missing_toolkit_of_cuda_12_comes_from_nvidias_archives():
    """Its wheels have no nvcc, and CUDA 13 does not compile for Pascal."""
    requests, wheel = with_toolkit(PASCAL, config=Config(cuda="12.6"))
    assert requests == [None]
    assert wheel.requires.cuda == "12.6 (from NVIDIA's archives)"
    assert wheel.requires.to_supply == ()
    assert [file.name for file in wheel.toolkit_wheels] == ["nvcc", "cudart", "cccl", "cublas"]
    nvcc = wheel.toolkit_wheels[0]
    assert nvcc.url == (
        "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/linux-x86_64/"
        "cuda_nvcc-linux-x86_64-12.6.85-archive.tar.xz"
    )
    assert nvcc.file == "cuda_nvcc-linux-x86_64-12.6.85-archive.tar.xz"
    assert (nvcc.sha256[:8], nvcc.size) == ("840deff2", 49996208)
    toolchain = {"gcc": ("12.2.0",), "g++": ("12.2.0",), "nvcc": ("12.6.85",)}
    _, installed = with_toolkit({"a": gpu("6.1", toolchain=toolchain)}, config=Config(cuda="12.6"))
    assert (installed.toolkit_wheels, installed.artifact_key) == ((), wheel.artifact_key)


def test_arm_gets_the_archives_for_servers():
    (nvcc, *_) = toolkit_archives("12.6", "aarch64", ("9.0",), ())
    assert "/linux-sbsa/cuda_nvcc-linux-sbsa-12.6.85-archive.tar.xz" in nvcc.url
    assert toolkit_archives("12.6", "aarch64", ("8.7",), ()) == ()  # a Jetson
    assert toolkit_archives("12.6", "x86_64", ("6.1",), ("unknown",)) == ()
    assert toolkit_archives("12.5", "x86_64", ("6.1",), ()) == ()


def test_cuda_11_8_for_kepler_has_no_nvjitlink():
    names = {file.name for file in toolkit_archives("11.8", "x86_64", ("3.7",), ("nvjitlink",))}
    assert names == {"nvcc", "cudart", "cccl"}


@pytest.mark.parametrize(
    ("cudnn", "version", "used"),
    [
        (("9.3.0",), "2.9.1", "1"),
        (("8.6.0", "9.3.0"), "2.15.0", "1"),
        (("8.6.0",), "2.15.0", "0"),  # it needs cuDNN 9
        ((), "2.9.1", "0"),
    ],
)
def test_a_jetson_is_built_with_the_cudnn_of_its_jetpack(cudnn, version, used):
    tools = {**NVCC_126, "cudnn": cudnn}
    orin = {name: gpu("8.7", driver=None, rung="armv8.2", toolchain=tools) for name in ("a", "b")}
    plan = planned(orin, packages=[package("torch", version)])
    (group,) = plan.groups
    assert group.wheels[0].environment["USE_CUDNN"] == used
    assert any("without cuDNN" in warning for warning in plan.warnings) == (used == "0")
    libraries = group.wheels[0].requires.libraries["cuda"]
    assert libraries == "the libraries of CUDA 12.6" + " and cuDNN 9" * int(used)
    orin["b"] = orin["b"].model_copy(update={"toolchain": NVCC_126})
    (mixed,) = planned(orin, packages=[package("torch", version)]).groups
    assert mixed.wheels[0].environment["USE_CUDNN"] == "0"


DEBIAN_13 = gpu("6.1", libc="2.41", toolchain=NVCC_126)
OLD_TORCH = package("torch", "2.7.1", TORCH.recipe)


def test_a_glibc_that_the_toolkit_does_not_compile_with_has_to_be_supplied_for():
    wheel = wheel_of({"deb13": DEBIAN_13}, [OLD_TORCH])
    sentence = wheel.requires.to_supply[0]
    assert wheel.cuda == "12.6"
    assert sentence.startswith(
        "deb13 has glibc 2.41, and CUDA 12.6 does not compile with 2.41 or newer: build in an image"
    )
    fleet = {"deb12": gpu("6.1", toolchain=NVCC_126), "deb13": DEBIAN_13}
    wheel = wheel_of(fleet, [OLD_TORCH])
    assert (wheel.built_on, wheel.fallbacks, wheel.requires.to_supply) == ("deb12", (), ())


def test_another_toolkit_that_compiles_there_is_named():
    fedora = gpu("8.6", libc="2.42", toolchain=NVCC_126)
    (sentence,) = wheel_of(
        {"f43": fedora}, [package("torch", "2.11.0", TORCH.recipe)]
    ).requires.to_supply
    assert "or take a CUDA that does (cuda: 13.2, 13.3, 13.4 or 13.5)" in sentence
