"""Groups, builders, keys and actions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, Facts, Floors, Libc, NodeResult
from fleetbuild.plan.decide.left_out import nodes_blocking_dependencies
from fleetbuild.plan.decide.requests import dependency_request
from fleetbuild.plan.decide.resolution import Locks, Resolution
from fleetbuild.plan.decide.wheels.ids import artifact_key
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.plan.document.serialize import dump_plan
from tests.factories.fleets import (
    SOURCE,
    answers,
    drafted,
    facts,
    inventory,
    locked,
    manifest,
    node,
    package,
    planned,
    python,
    recipe_of,
)

nodes_of = st.builds(
    facts,
    rung=st.sampled_from(list(RUNGS)),
    libc=st.sampled_from(["2.17", "2.28", "2.31", "2.36"]),
    pythons=st.sampled_from(
        [(python(),), (python("3.10.4"),), (python(venv=False),), (python(), python("3.12.0"))]
    ),
    cpus=st.sampled_from([None, 1, 8, 64]),
    memory_gb=st.sampled_from([None, 0.5, 16.0, 512.0]),
    toolchain=st.sampled_from([{}, {"clang": ("16.0.0",)}, {"gcc": ("9.4.0",), "g++": ("9.4.0",)}]),
    install_filesystem=st.sampled_from([None, "ext4", "nfs"]),
)
fleets = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(12)]),
    st.one_of(nodes_of, st.just(Facts(state="unreachable", reason="no route"))),
    min_size=1,
    max_size=12,
)
recipe_sets = st.sampled_from(
    [
        [package()],
        [package("other", "1.0")],
        [package(), package("tiny", "1.0", recipe_of("tiny", "x86-64", "armv8"))],
        [package("sve", "1", recipe_of("sve", "armv8", "armv8.4sve", "avx")), package()],
    ]
)
kinds = st.sampled_from([Config(), Config.model_validate({"grouping": {"rungs": "detected"}})])


@given(fleets, recipe_sets, kinds)
def test_every_plannable_node_is_in_exactly_one_group(fleet, packages, config):
    plan = planned(fleet, packages=packages, config=config, sources=())
    members = [name for group in plan.groups for name in group.nodes]
    assert sorted(members) == sorted(n for n, node in plan.nodes.items() if node.state == "ok")
    assert len(set(members)) == len(members)
    by_name = {group.name: group.nodes for group in plan.groups}
    assert all(name in by_name[node.group] for name, node in plan.nodes.items() if node.group)


@given(fleets, recipe_sets, kinds)
def test_no_group_needs_more_than_its_members_have(fleet, packages, config):
    plan = planned(fleet, packages=packages, config=config, sources=())
    for group in plan.groups:
        for name in group.nodes:
            known = fleet[name]
            assert set(group.target.features) <= set(known.features)
            assert all(set(w.target.features) <= set(known.features) for w in group.wheels)
            assert group.target.libc.family == known.libc.family
            floor = tuple(map(int, group.target.libc.floor.split(".")))
            assert floor <= tuple(map(int, known.libc.version.split(".")))
            assert group.target.python in {p.tag for p in known.pythons}
        assert group.representative in group.nodes
        assert all(wheel.built_on for wheel in group.wheels)


@given(fleets, recipe_sets, kinds, st.randoms(use_true_random=False))
def test_the_plan_is_the_same_for_any_order(fleet, packages, config, random):
    names = list(fleet)
    random.shuffle(names)
    one = planned(fleet, packages=packages, config=config, sources=())
    other = planned(
        {name: fleet[name] for name in names}, packages=packages, config=config, sources=()
    )
    assert dump_plan(one) == dump_plan(other)


@given(fleets, recipe_sets, kinds)
def test_a_groups_name_does_not_depend_on_other_groups(fleet, packages, config):
    together = planned(fleet, packages=packages, config=config, sources=())
    for name, known in fleet.items():
        alone = planned({name: known}, packages=packages, config=config, sources=())
        assert alone.nodes[name].group == together.nodes[name].group
        assert alone.nodes[name].state == together.nodes[name].state


def test_nodes_that_differ_only_in_unused_features_share_a_group():
    fleet = {"vnni": facts("avx512vnni"), "plain": facts("avx512"), "amx": facts("amx")}
    assert [group.name for group in planned(fleet).groups] == ["cpu-avx512-cp311"]
    apart = Config.model_validate({"grouping": {"rungs": "detected"}})
    assert [group.name for group in planned(fleet, config=apart).groups] == [
        "cpu-amx-cp311",
        "cpu-avx512-cp311",
        "cpu-avx512vnni-cp311",
    ]


def test_a_wheel_that_serves_two_groups_is_built_once():
    tiny = package("tiny", "1.0", recipe_of("tiny", "x86-64"))
    fleet = {"a": facts("avx2", "2.36"), "b": facts("avx512", "2.28")}
    plan = planned(
        fleet, packages=[package(), tiny],
        sources=(SOURCE, SOURCE.model_copy(update={"package": "tiny", "version": "1.0"})),
    )  # fmt: skip
    shared = [wheel for group in plan.groups for wheel in group.wheels if wheel.package == "tiny"]
    assert len(shared) == 2
    assert shared[0] == shared[1]
    assert shared[0].built_on == "b"
    assert shared[0].target.libc.floor == "2.28"
    assert plan.summary.wheels_to_build == 3


def test_the_representative_has_the_oldest_libc_then_compilers_memory_and_cores():
    fleet = {
        "big": facts(libc="2.36", memory_gb=512.0),
        "old-bare": facts(libc="2.28", toolchain={}, memory_gb=512.0),
        "old": facts(libc="2.28", memory_gb=8.0),
        "old-more": facts(libc="2.28", memory_gb=8.0, cpus=64),
    }
    group = planned(fleet).groups[0]
    assert (group.representative, *group.fallbacks) == ("old-more", "old", "old-bare", "big")
    assert group.target.libc.floor == "2.28"
    assert group.wheels[0].built_on == "old-more"
    assert group.wheels[0].build_pythons == dict.fromkeys(fleet, "/usr/bin/python3")


def test_among_nodes_of_a_size_those_reached_directly_build_and_then_those_with_less_load():
    fleet = {
        "behind": facts(memory_gb=64.0, cpus=16, behind_bastion=True),
        "busy": facts(memory_gb=63.5, cpus=16, load=12.5),
        "free": facts(memory_gb=62.0, cpus=16, load=0.5),
        "small": facts(memory_gb=8.0, cpus=4),
    }

    def first() -> tuple[str | None, str]:
        (wheel,) = planned(fleet).groups[0].wheels
        return wheel.built_on, wheel.why_there

    assert planned(fleet).groups[0].wheels[0].fallbacks == ("busy", "behind", "small")
    assert first() == ("free", "less busy")
    del fleet["free"]
    assert first() == ("busy", "reached directly")
    del fleet["busy"]
    assert first() == ("behind", "most memory")  # a bastion costs less than a slow build
    fleet["old"] = facts(libc="2.28", toolchain={})
    assert first() == ("old", "oldest libc")
    assert planned({"a": facts(), "b": facts()}).groups[0].wheels[0].why_there == "first by name"


def test_a_member_with_ensurepip_builds_before_one_that_has_to_get_it():
    fleet = {
        "a": facts(cpus=64, pythons=(python(venv=True, ensurepip=False),)),
        "b": facts(cpus=4, pythons=(python(venv=True, ensurepip=True),)),
    }
    (wheel,) = planned(fleet).groups[0].wheels
    assert (wheel.built_on, wheel.fallbacks) == ("b", ("a",))


def test_libc_versions_are_compared_as_numbers():
    plan = planned({"a": facts(libc="2.4"), "b": facts(libc="2.28")})
    assert plan.groups[0].target.libc.floor == "2.4"


def test_a_strong_machine_builds_for_weaker_ones():
    fleet = {"weak": facts("avx"), "strong": facts("avx512", cpus=128)}
    plan = planned(fleet, nodes=[node("weak"), node("strong", builder=True)])
    assert [group.wheels[0].built_on for group in plan.groups] == ["strong", "strong"]
    assert plan.groups[0].wheels[0].fallbacks == ("weak",)
    assert planned(fleet, builders=["strong"]).groups[0].wheels[0].built_on == "strong"


@pytest.mark.parametrize(
    ("builder", "reason"),
    [
        (facts("armv8"), "s is aarch64"),
        (facts("x86-64"), "s lacks"),
        (facts("amx", "2.39"), "newer than the group's"),
        (facts("amx", libc=Libc(family="musl", version="1.2.4")), "s has musl"),
        (facts("amx", "2.28", pythons=(python("3.12.0"),)), "no interpreter for cp311"),
        (Facts(state="unreachable"), "s was not reached"),
        (Facts(state="skipped"), "s has fleetbuild_skip"),
    ],
)
def test_a_builder_that_does_not_fit_is_named_with_the_reason(builder, reason):
    plan = planned({"a": facts("avx2", "2.28"), "s": builder}, builders=["s"])
    wheel = next(g for g in plan.groups if "a" in g.nodes).wheels[0]
    assert wheel.built_on == "a"
    assert any(reason in warning and "a builds it" in warning for warning in plan.warnings)


def test_a_named_builder_that_is_not_used_is_a_warning():
    fleet = {"a": facts("avx2", "2.28"), "good": facts("amx", "2.28"), "new": facts("amx", "2.39"),
             "arm": facts("armv8.2", "2.28")}  # fmt: skip
    nodes = [node("a")]
    made = planned(fleet, nodes=nodes, builders=["good", "new", "arm", "left-out"])
    assert made.groups[0].wheels[0].built_on == "good"
    (warning,) = made.warnings
    assert warning == (
        "Not every named builder can build cpu-avx2-cp311 (libc floor 2.28): new has glibc 2.39, "
        "newer than the group's; left-out was not probed: it is not among the nodes of this "
        "run."
    )


def test_jobs_follow_memory_as_well_as_cores():
    assert planned({"a": facts(cpus=64, memory_gb=6.0)}).groups[0].wheels[0].jobs == 4
    assert planned({"a": facts(cpus=2, memory_gb=64.0)}).groups[0].wheels[0].jobs == 2
    assert planned({"a": facts(cpus=None, memory_gb=0.2)}).groups[0].wheels[0].jobs == 1


def flags_of(**toolchains):
    fleet = {name: facts(toolchain=tools) for name, tools in toolchains.items()}
    return planned(fleet).groups[0].wheels[0].environment["CFLAGS"]


def test_flags_suit_every_possible_builder():
    new, old = {"gcc": ("12.2.0",), "g++": ("12.2.0",)}, {"gcc": ("9.4.0",), "g++": ("9.4.0",)}
    assert flags_of(a=new) == "-O3 -march=x86-64-v3"
    assert "-mavx2" in flags_of(a=old)
    assert "-mavx2" in flags_of(a=new, b=old)
    assert "-mavx2" in flags_of(a={})
    assert "-mavx2" in flags_of(a=new, b={"clang": ("16.0.0",)})
    assert flags_of(a={"clang": ("16.0.0",)}) == "-O3 -march=x86-64-v3"


def test_the_builders_requirements_are_listed():
    present = planned({"a": facts()}).groups[0].wheels[0].requires
    assert present.compiler == "gcc 12.2.0 (present)"
    absent = planned({"a": facts(toolchain={}, disk_gb=0.25)}).groups[0].wheels[0].requires
    assert absent.compiler == "gcc (to be installed by the toolchain role)"
    assert "a has 0.25 GB free" in absent.to_supply[0]
    unknown = planned({"a": facts(toolchain={"clang": ()})}).groups[0].wheels[0].requires
    assert "unknown version" in unknown.compiler


def key_of(fleet, **more):
    return planned(fleet, **more).groups[0].wheels[0].artifact_key


def test_the_artifact_key_does_not_depend_on_the_builder():
    base = key_of({"a": facts()})
    assert len(base) == 32
    assert base == key_of({"b": facts(toolchain={"gcc": ("9.4.0",), "g++": ("9.4.0",)}, cpus=1)})
    assert base == key_of({"a": facts(libc="2.28")})
    other_file = Resolution(wheels=(locked("numpy", "2.0", "e"), locked("setuptools", "80", "f")))
    assert base == key_of({"a": facts()}, build=other_file)
    newer = Resolution(wheels=(locked("numpy", "2.1"), locked("setuptools", "80")))
    different = [
        key_of({"a": facts("avx512")}),
        key_of({"a": facts(pythons=(python("3.12.0"),))}),
        key_of({"a": facts(libc=Libc(family="musl", version="1.2.4"))}),
        key_of({"a": facts()}, build=newer),
        key_of(
            {"a": facts()},
            sources=(SOURCE.model_copy(update={"file": locked("hnswlib", "0.8.0", "6")}),),
        ),
        key_of(
            {"a": facts()},
            packages=[package(recipe=recipe_of("hnswlib", "avx2", more="environment: {A: b}"))],
        ),
    ]
    assert len({base, *different}) == 1 + len(different)
    told = recipe_of("hnswlib", "avx", "avx2", more="description: words\ndisk_gb: 9\n"
                     "environment: {HNSWLIB_NO_NATIVE: '1'}")  # fmt: skip
    assert base == key_of({"a": facts()}, packages=[package(recipe=told)])


def test_reuse_only_where_the_libc_floor_is_low_enough():
    key = key_of({"a": facts()})
    stored = planned({"a": facts(libc="2.31")}, store={key: [Floors("2.28")]})
    assert stored.groups[0].wheels[0].action == "reuse"
    assert stored.summary.wheels_reused == 1
    newer = planned({"a": facts(libc="2.31")}, store={key: [Floors("2.36")]})
    assert newer.groups[0].wheels[0].action == "build"
    assert "needs glibc 2.36" in newer.groups[0].wheels[0].reason


def test_reuse_only_where_libstdcxx_is_new_enough():
    fleet = {"a": facts(libstdcxx="3.4.30"), "b": facts(libstdcxx="3.4.25"), "c": facts()}
    key = key_of(fleet)

    def wheel(*stored):
        return planned(fleet, store={key: list(stored)}).groups[0].wheels[0]

    assert wheel().libstdcxx == "3.4.25"
    assert wheel(Floors("2.28", "3.4.9")).action == "reuse"
    assert wheel(Floors("2.40", "3.4.9"), Floors("2.28", "3.4.25")).action == "reuse"
    for unfit in (Floors("2.28", "3.4.30"), Floors("2.28")):
        assert wheel(unfit).action == "build"
        assert "not checked with a libstdc++ as old as GLIBCXX_3.4.25" in wheel(unfit).reason
    unknown = planned({"c": facts()}, store={key: [Floors("2.28", "3.4.30")]})
    assert unknown.groups[0].wheels[0].action == "reuse"


def test_installs_follow_the_current_release():
    wanted = planned({"a": facts()}).groups[0].release_id
    assert len(wanted) == 16
    fleet = {
        "new": facts(),
        "done": facts(release={"default": manifest(wanted)}),
        "unverified": facts(release={"default": manifest(wanted, verified=False)}),
        "older": facts(release={"default": manifest("0123456789abcdef")}),
        "elsewhere": facts(release={"other": manifest(wanted)}),
    }
    plan = planned(fleet)
    installs = plan.groups[0].installs
    assert installs.up_to_date == ("done",)
    assert installs.upgrade == ("older",)
    assert installs.install == ("elsewhere", "new", "unverified")
    assert (plan.summary.nodes_to_change, plan.summary.nodes_up_to_date) == (4, 1)
    assert plan.nodes["older"].current == "0123456789abcdef"


def test_nothing_is_built_for_nodes_that_have_it():
    wanted = planned({"a": facts()}).groups[0].release_id
    plan = planned({"a": facts(release={"default": manifest(wanted)})}, store={})
    assert plan.groups[0].wheels[0].action == "reuse"
    assert "has it already" in plan.groups[0].wheels[0].reason
    assert plan.summary.wheels_to_build == 0


def test_without_an_index_there_are_groups_but_no_lock():
    plan = planned({"a": facts()}, locks=Locks())
    group = plan.groups[0]
    assert plan.lock == "missing"
    assert plan.lock_problem == "No package index was queried."
    assert (group.release_id, group.dependencies, group.wheels[0].artifact_key) == (None,) * 3
    assert group.wheels[0].action == "build"
    assert group.installs.install == ("a",)


def test_a_closure_that_does_not_exist_blocks_its_group_alone():
    fleet = {"a": facts("avx"), "b": facts("avx2")}
    made = drafted(fleet)
    locks = answers(made, fleet)
    problem = Resolution(problem="numpy has no wheel.", fix="Build it.")
    locks.dependencies["cpu-avx-cp311"] = problem
    plan = planned(fleet, locks=locks)
    assert (plan.nodes["a"].state, plan.nodes["b"].state) == ("blocked", "ok")
    assert plan.nodes["a"].reason == "cpu-avx-cp311: numpy has no wheel."
    assert plan.nodes["a"].fix == "Build it."
    assert plan.nodes["a"].group == "cpu-avx-cp311"
    assert plan.groups[0].wheels[0].action == "blocked"
    assert plan.lock == "complete"
    assert plan.summary.nodes_blocked == 1
    assert nodes_blocking_dependencies(made.groups, locks.dependencies) == {}


def test_a_member_with_too_old_a_libc_is_blocked_alone():
    fleet = {"old": facts(libc="2.17"), "new": facts(libc="2.36"), "new2": facts(libc="2.36")}
    packages = [package()]
    made = drafted(fleet)
    bad = Resolution(problem="numpy needs glibc 2.28.", fix="Update it.")
    old_libc_nodes = nodes_blocking_dependencies(made.groups, {"cpu-avx2-cp311": bad})
    assert old_libc_nodes == {"old": ("cpu-avx2-cp311: numpy needs glibc 2.28.", "Update it.")}
    again = drafted(fleet, packages, blocked=old_libc_nodes)
    assert [group.nodes for group in again.groups] == [("new", "new2")]
    plan = make_plan(
        inventory(fleet), fleet, packages, Config(),
        drafted=again, locks=answers(again, fleet), store={}, created="now",
    )  # fmt: skip
    assert plan.nodes["old"].state == "blocked"
    assert plan.nodes["old"].fix == "Update it."


def test_the_lock_is_for_the_oldest_interpreter_of_the_group():
    fleet = {"a": facts(pythons=(python("3.11.9"),)), "b": facts(pythons=(python("3.11.0rc1"),))}
    made = drafted(fleet)
    assert dependency_request(made.groups[0], [package()]).python_version == "3.11.0"


def test_a_source_without_build_requirements_needs_no_build_lock():
    source = SOURCE.model_copy(update={"build_requirements": ()})
    assert key_of({"a": facts()}, sources=(source,))


def test_a_cuda_pin_without_effect_is_a_warning():
    assert "no effect" in planned({"a": facts()}, config=Config(cuda="12.6")).warnings[0]


@pytest.mark.parametrize(("has", "said"), [(0.4, 1), (16.0, 0), (None, 0)])
def test_a_builder_with_too_little_memory_is_a_warning(has, said):
    plan = planned({"a": facts(memory_gb=has)})
    assert ["a has 0.4 GB of memory" in each for each in plan.warnings] == [True] * said


@pytest.mark.parametrize(("version", "said"), [("2.13.0", 0), ("9.1.0", 1)])
def test_a_torch_newer_than_the_tables_is_a_warning(version, said):
    plan = planned({"a": facts()}, packages=[package("torch", version)], sources=())
    assert [each.startswith("torch 9.1 is newer than the newest") for each in plan.warnings] == [
        True
    ] * said


def test_versions_with_a_local_label_keep_it():
    wheel = planned({"a": facts()}, packages=[package(version="1.0+ours")], sources=()).groups[0]
    assert wheel.wheels[0].wheel_version == "1.0+ours.cpu.avx2"
    assert planned({"a": facts()}).groups[0].wheels[0].wheel_version == "0.8.0+cpu.avx2"


CUDA_RECIPE = "cuda: true"


def test_gpus_separate_groups_only_for_packages_that_use_them():
    fleet = {
        "a": facts(sms=("8.6",)),
        "b": facts(sms=("9.0", "8.0")),
        "c": facts(),
    }
    kernels = package("kernels", "1.0", recipe_of("kernels", "avx2", more=CUDA_RECIPE))
    names = [group.name for group in drafted(fleet, [package(), kernels]).groups]
    assert names == ["cpu-avx2-cp311", "sm80.sm90-avx2-cp311", "sm86-avx2-cp311"]
    assert [group.name for group in drafted(fleet, [package()]).groups] == ["cpu-avx2-cp311"]


def test_a_package_without_gpu_code_is_built_once_beside_one_with():
    fleet = {"a": facts(sms=("8.6",)), "b": facts(sms=("9.0",))}
    kernels = package("kernels", "1.0", recipe_of("kernels", "avx2", more=CUDA_RECIPE))
    wheels = drafted(fleet, [package(), kernels]).wheels
    assert sorted((wheel.package.name, wheel.target.sms) for wheel in wheels) == [
        ("hnswlib", ()),
        ("kernels", ("8.6",)),
        ("kernels", ("9.0",)),
    ]


def test_the_inventory_may_say_which_sms_a_node_has():
    fleet = {"a": facts(sms=("8.6",)), "b": facts(sms=("8.6",))}
    kernels = package("kernels", "1.0", recipe_of("kernels", "avx2", more=CUDA_RECIPE))
    nodes = [node("a", sms=()), node("b", sms=("8.0", "12.0", "9.0"))]
    names = [group.name for group in drafted(fleet, [kernels], nodes).groups]
    assert names == ["cpu-avx2-cp311", "sm80.sm90.sm120-avx2-cp311"]


def test_build_blas_is_part_of_the_target_if_the_recipe_offers_it():
    fleet = {"a": facts(), "arm": facts("armv8.2")}
    packages = [package("numpy", "2.3.5")]
    config = Config.model_validate({"build": {"blas": "mkl"}})
    made = planned(fleet, packages=packages, config=config)
    wheels = {group.name: group.wheels[0] for group in made.groups}
    assert wheels["cpu-avx2-cp311"].target.blas == "mkl"
    assert wheels["cpu-armv8.2-cp311"].target.blas is None
    (warning,) = (each for each in made.warnings if "blas" in each)
    assert "no effect on numpy for cpu-armv8.2-cp311" in warning
    assert "does not build with mkl on aarch64" in warning
    keys = [
        artifact_key(
            recipe=packages[0].recipe,
            package="numpy",
            version="2.3.5",
            target=made.groups[-1].target.model_copy(update={"blas": blas}),
            source_sha256="5" * 64,
            build_lock=(),
        )
        for blas in (None, "mkl", "openblas")
    ]
    assert len({*keys}) == 3
    other = planned(fleet, config=config)
    assert "build.blas: mkl has no effect: no package of this release chooses its BLAS." in (
        other.warnings
    )


def test_a_plan_says_that_it_changes_what_a_rollback_left():
    fleet = {name: facts(release={"default": manifest("r1")}) for name in ("back", "kept", "other")}
    expected = {
        "back": NodeResult(node="back", state="rolled_back", release_id="r1"),
        "kept": NodeResult(node="kept", state="installed", release_id="r1"),
        "other": NodeResult(node="other", state="rolled_back", release_id="r0"),
    }
    said = "back: rolled back to the release that serves now. This plan changes it."
    assert said in planned(fleet, expected=expected).warnings
    assert not [each for each in planned(fleet).warnings if "rolled back" in each]
