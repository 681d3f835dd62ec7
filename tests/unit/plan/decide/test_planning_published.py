"""Published wheels: taken where they fit, built where they do not, or blocked."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from fleetbuild.models import Config, Gpu
from fleetbuild.models.verdict import Code
from fleetbuild.plan.decide.requests import build_request, dependency_request
from fleetbuild.plan.decide.resolution import Resolution, Source
from fleetbuild.plan.decide.wheels.published import (
    PublishedChoice,
    choose_published,
    must_be_read,
)
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.plan.resolve import published
from fleetbuild.store.index_config import IndexSettings
from tests.factories.fleets import answers, drafted, facts, inventory, locked, package, recipe_of
from tests.factories.plans import make_target

AUTO = Config.model_validate({"build": {"policy": "auto"}})
ONLY = Config.model_validate({"build": {"policy": "published"}})
TORCH = package("torch", "2.13.0")
PLAIN = package("plain", "1.0", recipe_of("plain", "avx", "avx2"))


target = partial(make_target, floor="2.28")


def file(name="torch", version="2.13.0"):
    return locked(name, version, "e")


def chosen(package, wanted, members=(), version="2.13.0", **more):
    return choose_published(
        package, wanted, members, file(package.name, version), versions={"torch": "2.13.0"}, **more
    )


def gpu(*sms, driver="580.65.06"):
    return facts(sms=sms, gpus=tuple(Gpu(name="g", sm=sm) for sm in sms), driver=driver)


def test_pytorchs_wheel_runs_from_x86_64_v2_on():
    choice = chosen(TORCH, target("avx"), version="2.13.0+cpu")
    assert choice.file
    assert choice.why == "Runs on x86-64-v2 or better and chooses its code at run time."


def test_pytorchs_wheel_is_not_for_cpus_without_sse4_1():
    """Its oneDNN makes no convolution there."""
    choice = chosen(TORCH, target("x86-64"), version="2.13.0+cpu")
    assert "it is built for x86-64-v2, and these nodes are x86-64" in choice.why


def test_a_wheel_with_cuda_runs_on_cpus_and_the_plan_says_so():
    assert "includes CUDA 13.0, which these nodes do not use" in chosen(TORCH, target()).why


@pytest.mark.parametrize(
    ("sms", "driver", "version", "said"),
    [
        (("8.6",), "580.65.06", "2.13.0", None),
        (("8.6",), "550.54.15", "2.13.0", "driver 550.54.15 does not run CUDA 13.0"),
        (("8.6",), "550.54.15", "2.13.0+cu126", None),
        (("6.0", "8.6"), "580.65.06", "2.13.0", "no code for SM 6.0"),
        (("6.0",), "580.65.06", "2.13.0+cu126", None),
        (("12.0",), "580.65.06", "2.13.0+cu126", "no code for SM 12.0"),
        (("8.6",), "580.65.06", "2.13.0+cpu", "it has no GPU code"),
    ],
)
def test_pytorchs_wheels_fit_by_variant_sm_and_driver(sms, driver, version, said):
    choice = chosen(TORCH, target(sms=sms), [gpu(*sms, driver=driver)], version)
    assert (choice.file is None) == (said is not None)
    assert said is None or said in choice.why


@pytest.mark.parametrize(
    ("isa", "version", "said"),
    [
        ("armv8", "2.4.0", "it is built for armv8.2, and these nodes are armv8"),
        ("armv8", "2.6.0", "it is built for armv8.2, and these nodes are armv8"),
        ("armv8", "2.7.1", None),
        ("armv8", "2.10.0", "it is built for armv8.2, and these nodes are armv8"),
        ("armv8", "2.11.0", None),
        ("armv8.2", "2.6.0", None),
    ],
)
def test_published_torch_with_lse_atomics_is_not_for_armv8_0(isa, version, said):
    """2.6.0 dies of ldaddal on a Cortex-A72."""
    torch = package("torch", version)
    choice = chosen(torch, target(isa, arch="aarch64"), version=f"{version}+cpu")
    assert (choice.file is None) == (said is not None)
    assert said is None or said in choice.why


def test_pypis_torch_for_arm_is_known_by_architecture_or_read():
    """That of 2.9.1 is for CPUs only, while the one for x86-64 has CUDA."""
    gh200, hopper = target("armv9", arch="aarch64", sms=("9.0",)), target(sms=("9.0",))

    def answer(version, wanted, **more):
        wheel, torch = file(version=version), package("torch", version)
        members = [gpu("9.0")]
        return choose_published(torch, wanted, members, wheel, versions={"torch": version}, **more)

    assert "it has no GPU code" in answer("2.9.1", gh200).why
    assert answer("2.9.1", hopper).file
    assert answer("2.9.1+cu130", gh200).file
    assert answer("2.13.0", gh200).file
    for version, unread in (("2.9.1", False), ("2.12.1", True), ("2.12.1+cu130", False)):
        assert must_be_read(package("torch", "2.12.1"), gh200, file(version=version)) is unread
    assert answer("2.12.1", gh200, code=Code(sms=("9.0",))).file
    assert "it has no code for SM 9.0" in answer("2.12.1", gh200, code=Code()).why


def test_a_torch_that_was_built_for_a_target_is_read():
    """What PyTorch releases runs on other CPUs and GPUs than a wheel that somebody exported."""
    own = "2.6.0+cu124.sm86.avx"
    torch, wheel, card = package("torch", "2.6.0"), file(version=own), gpu("8.6")
    code = Code(features=("avx",), sms=("8.6",))

    def answer(wanted, members=(card,)):
        return choose_published(torch, wanted, members, wheel, versions={"torch": own}, code=code)

    assert must_be_read(torch, target("avx", sms=("8.6",)), wheel)
    assert answer(target("avx", sms=("8.6",))).file
    assert "uses avx, which x86-64-v2 does not" in answer(target("x86-64-v2", sms=("8.6",))).why
    assert "it has no code for SM 7.0" in answer(target("avx", sms=("7.0",))).why
    assert "driver 470" in answer(target("avx", sms=("8.6",)), [gpu("8.6", driver="470")]).why
    old = code.model_copy(update={"sms": ("5.0",)})
    kept = choose_published(
        torch, target("avx", sms=("5.0",)), [gpu("5.0")], file(version="2.9.1+cu130.sm50.avx"),
        versions={"torch": "2.9.1"}, code=old,
    )  # fmt: skip
    assert kept.file  # PyTorch's own has no code for it


def test_a_companion_of_another_torch_with_the_same_cuda_does_not_fit():
    own = "+cu124.sm86.avx"

    def answer(companion, torch):
        return choose_published(
            package("torchvision", "0.21.0"), target("avx", sms=("8.6",)), [gpu("8.6")],
            file("torchvision", f"0.21.0{companion}"), versions={"torch": "2.6.0"},
            code=Code(sms=("8.6",)), published_torch=file(version=f"2.6.0{torch}"),
        )  # fmt: skip

    assert answer(own, own).file
    assert answer("+cu124", "+cu124").file
    assert "built for CUDA 12.4, but torch 2.6.0+cu124.sm86.avx for" in answer("+cu124", own).why


def test_the_code_of_another_published_wheel_is_read():
    assert must_be_read(PLAIN, target(), file("plain", "1.0"))
    assert not must_be_read(TORCH, target(sms=("8.6",)), file())
    fits = chosen(PLAIN, target(), code=Code(features=("avx2",)))
    assert fits.why == "Uses no CPU features beyond avx2."
    damaged = chosen(PLAIN, target(), code=Code(problem="'a.py' has no valid hash in RECORD"))
    assert "'a.py' has no valid hash in RECORD" in damaged.why
    beyond = chosen(PLAIN, target("avx"), code=Code(features=("avx2", "fma")))
    assert beyond.file is None
    assert "it uses avx2, fma, which avx does not have" in beyond.why
    assert "it is unknown" in chosen(PLAIN, target()).why


def test_cuda_ptx_takes_only_published_wheels_that_are_known_to_have_the_ptx():
    kernels = package("kernels", "1.0", recipe_of("kernels", "avx2", more="cuda: true"))
    wanted = target(sms=("8.6",), ptx="8.6")
    assert chosen(kernels, wanted, code=Code(sms=("8.6",), ptx=("8.6",))).file
    for choice in (
        chosen(kernels, wanted, code=Code(sms=("8.6",), ptx=("8.0",))),
        chosen(TORCH, wanted, [gpu("8.6")]),
    ):
        assert "not known to have PTX for SM 8.6 (cuda_ptx)" in choice.why


def test_published_gpu_code_must_serve_every_sm():
    kernels = package("kernels", "1.0", recipe_of("kernels", "avx2", more="cuda: true"))
    assert chosen(kernels, target(sms=("8.6",)), code=Code(sms=("8.0",))).file
    assert (
        "no code for SM 9.0" in chosen(kernels, target(sms=("9.0",)), code=Code(sms=("8.0",))).why
    )


def test_a_baseline_above_the_nodes_does_not_fit():
    numpy = package("numpy", "2.4.0")
    assert (
        "it is built for x86-64-v2, and these nodes are x86-64"
        in chosen(numpy, target("x86-64")).why
    )


def test_onnxruntime_is_taken_where_its_wheel_was_seen_to_run():
    """It cannot be built, and the code in its file is of all CPUs."""
    onnx = package("onnxruntime", "1.32.0")
    assert chosen(onnx, target("avx"), version="1.32.0").file
    assert chosen(onnx, target("x86-64-v2"), version="1.32.0").file
    assert not must_be_read(onnx, target("avx"), file("onnxruntime", "1.32.0"))
    older = chosen(onnx, target("x86-64"), version="1.32.0")
    assert "it is built for x86-64-v2, and these nodes are x86-64" in older.why
    assert must_be_read(onnx, target("armv8", arch="aarch64"), file("onnxruntime", "1.32.0"))


@pytest.mark.parametrize(
    ("version", "torch", "said"),
    [
        ("0.28.0+cpu", "2.13.0+cpu", None),
        ("0.28.0", "2.13.0", None),
        ("0.28.0+cu130", "2.13.0", None),
        ("0.28.0", "2.13.0+cpu", "built for CUDA 13.0, but torch 2.13.0+cpu for CPUs only"),
        ("0.28.0+cu126", "2.13.0", "built for CUDA 12.6, but torch 2.13.0 for CUDA 13.0"),
        ("0.28.0", None, "it works only with a published torch"),
    ],
)
def test_a_companion_fits_only_its_variant_of_torch(version, torch, said):
    published_torch = file(version=torch) if torch else None
    choice = chosen(
        package("torchvision", "0.28.0"), target(), version=version, published_torch=published_torch
    )
    assert (choice.file is None) == (said is not None)
    assert said is None or said in choice.why


def test_every_variant_on_the_index_is_considered_and_companions_match_it(monkeypatch):
    on_index = {
        "torch": ["2.13.0+cpu", "2.13.0"],
        "torchvision": ["0.28.0+cu126", "0.28.0+cpu", "0.28.0"],
    }

    def find_wheels(questions, settings, **_):
        assert settings == IndexSettings()
        found = {}
        for question in questions:
            (name,) = {requirement.partition("==")[0] for requirement in question.requirements}
            left = [v for v in on_index[name] if f"{name}!={v}" not in question.constraints]
            found[question] = Resolution(wheels=(locked(name, left[0]),))
        return found

    monkeypatch.setattr(published, "find_wheels", find_wheels)
    packages = [package("torchvision", "0.28.0"), TORCH]
    fleet = {"a": facts(), "b": gpu("9.0"), "c": gpu("6.0")}
    groups, store = drafted(fleet, packages).groups, SimpleNamespace(settings=IndexSettings())
    choices = published.find_published(groups, packages, (), store, None, never_build=False)
    versions = {key: choice.file and choice.file.version for key, choice in choices.items()}
    assert versions == {
        ("torch", "cpu-avx2-cp311"): "2.13.0+cpu",
        ("torchvision", "cpu-avx2-cp311"): "0.28.0+cpu",
        ("torch", "sm90-avx2-cp311"): "2.13.0",
        ("torchvision", "sm90-avx2-cp311"): "0.28.0",
        ("torch", "sm60-avx2-cp311"): None,
        ("torchvision", "sm60-avx2-cp311"): None,
    }
    assert "it has no GPU code" in choices["torch", "sm60-avx2-cp311"].why


TAKEN = {
    ("hnswlib", "cpu-avx2-cp311"): PublishedChoice(
        file=locked("hnswlib", "0.8.0", "e"), version="0.8.0", why="It fits."
    )
}
NOT = {
    ("hnswlib", "cpu-avx-cp311"): PublishedChoice(
        version="0.8.0", why="hnswlib.whl does not fit: it holds avx2."
    )
}


def the_plan(config, fleet, choices):
    made = drafted(fleet, published=choices, config=config)
    closure = Resolution(wheels=(locked("numpy", "2.0", "b"), locked("hnswlib", "0.8.0", "e")))
    locks = answers(made, fleet, closure=closure)
    plan = make_plan(
        inventory(fleet), fleet, [package()], config,
        drafted=made, locks=locks, store={}, created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    return made, plan


def test_fitting_published_wheels_are_taken_and_the_others_are_built():
    fleet = {"a": facts("avx2"), "b": facts("avx")}
    made, plan = the_plan(AUTO, fleet, TAKEN | NOT)
    groups = {group.name: group for group in plan.groups}
    taken, built = groups["cpu-avx2-cp311"].wheels[0], groups["cpu-avx-cp311"].wheels[0]
    assert (taken.action, taken.reason, taken.wheel_version) == ("published", "It fits.", "0.8.0")
    assert taken.artifact_key
    assert taken.published == locked("hnswlib", "0.8.0", "e")
    assert (built.action, built.wheel_version) == ("build", "0.8.0+cpu.avx")
    assert built.reason.endswith("does not fit: it holds avx2.")
    assert [each.name for each in groups["cpu-avx2-cp311"].dependencies or ()] == ["numpy"]
    assert groups["cpu-avx2-cp311"].release_id
    assert plan.summary.wheels_to_build == 1
    question = dependency_request(made.groups[1], [package()], published=TAKEN | NOT)
    assert question.requirements == ("hnswlib==0.8.0",)
    assert question.sources == ()


def test_an_extension_is_built_against_the_published_wheel():
    fleet = {"a": facts("avx2")}
    scatter = package("torch-scatter", "2.1.2")
    choices = {
        ("torch", "cpu-avx2-cp311"): PublishedChoice(
            file=locked("torch", "2.13.0+cpu", "e"), version="2.13.0", why="Fits."
        ),
        ("torch-scatter", "cpu-avx2-cp311"): PublishedChoice(version="2.1.2", why="No."),
    }
    made = drafted(fleet, [scatter, TORCH], published=choices, config=AUTO)
    torch, extension = made.wheels
    assert torch.taken
    source = Source(package="torch-scatter", version="2.1.2", file=locked("torch-scatter"))
    asked = build_request(extension, source, fleet)
    assert asked
    assert "torch==2.13.0+cpu" in asked.requirements
    assert asked.static_metadata == ()


def amd(*names):
    return facts(gpus=tuple(Gpu(name="an AMD", vendor="amd", gfx=name) for name in names))


@pytest.mark.parametrize(
    ("version", "members", "said"),
    [
        ("2.13.0+rocm7.2", [amd("gfx942"), amd("gfx1151")], None),
        ("2.13.0+rocm6.4", [amd("gfx942")], None),
        ("2.13.0+rocm6.4", [amd("gfx942"), amd("gfx1151")], "it has no code for gfx1151"),
        ("2.13.0+rocm7.2", [amd("gfx942", "gfx1036")], "it has no code for gfx1036"),
        ("2.13.0+rocm7.2", [amd("gfx942"), facts()], "which not all of these nodes have"),
        ("2.13.0+rocm7.2", [], "for GPUs of AMD (ROCm 7.2), which not all"),
        ("2.13.0+rocm7.2", [amd(None)], "its driver does not work"),
        ("2.13.0+rocm5.2", [amd("gfx90a")], "it has no code for gfx90a"),
        ("2.14.1+rocm7.14", [amd("gfx942"), amd("gfx1103")], None),
        ("2.14.1+rocm7.14", [amd("gfx906")], "it has no code for gfx906"),
    ],
)
def test_rocm_wheels_are_taken_by_the_gpus_of_amd(version, members, said):
    """Never for other nodes, although a version with a label comes before one without."""
    choice = chosen(TORCH, target("avx512"), members, version)
    assert (choice.file is None) == (said is not None)
    assert (said or "with code of ROCm") in choice.why


@pytest.mark.parametrize(
    ("place", "gfx", "fits"),
    [
        ("gfx1151", "gfx1151", True),
        ("gfx1151", "gfx1150", False),
        ("gfx120X-all", "gfx1201", True),
        ("gfx120X-all", "gfx1100", False),
        ("gfx94X-dcgpu", "gfx942", True),
        ("gfx94X-dcgpu", "gfx90a", False),
        ("gfx950-dcgpu", "gfx950", True),
    ],
)
def test_amds_own_indexes_are_for_one_family_each(place, gfx, fits):
    url = f"https://rocm.example.org/v2/{place}/torch-2.10.0%2Brocm7.10.0-cp312-cp312-linux_x86_64.whl"
    wheel = file(version="2.10.0+rocm7.10.0").model_copy(update={"url": url})
    torch = package("torch", "2.10.0")
    choice = choose_published(
        torch, target("avx512"), [amd(gfx)], wheel, versions={"torch": "2.10.0"}
    )
    assert (choice.file is not None) == fits


def test_a_companion_goes_with_a_torch_for_the_same_rocm():
    vision = package("torchvision", "0.28.0")
    reasons = [
        chosen(vision, target("avx512"), [amd("gfx942")], version,
               published_torch=file(version="2.13.0+rocm7.2")).why
        for version in ("0.28.0+rocm7.2", "0.28.0+cpu")
    ]  # fmt: skip
    assert reasons[0].startswith("Runs on x86-64-v2")
    assert "built for CPUs only, but torch 2.13.0+rocm7.2 for ROCm 7.2" in reasons[1]
