"""Fewer wheel sets for a fleet: which are merged, which never are, and which nodes pay."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.errors import ConfigError
from fleetbuild.extensions.catalogue.costs import Part, Pricing
from fleetbuild.extensions.catalogue.partition import cheapest_partitions
from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, Facts, Libc
from fleetbuild.models.config import Grouping
from fleetbuild.plan.decide.groups import node_targets
from fleetbuild.plan.decide.wheels.draft import PlanDraft
from fleetbuild.plan.document.serialize import dump_plan
from fleetbuild.plan.explain import explain_group, explain_node
from fleetbuild.recipes import known_recipes
from tests.extensions.catalogue.test_partition import partitions
from tests.factories.data import seed_fleet
from tests.factories.fleets import drafted, facts, package, planned, python, recipe_of

CPU = recipe_of("small", *RUNGS, more="cost: {minutes: 2, size_mb: 1}")
GPU = recipe_of(
    "large", "avx", "avx2", "avx512", "armv8", "armv8.2", "armv8.4sve", "armv9",
    more="rungs_for: {int8: [avx512vnni, amx], bf16: [avx512bf16, amx]}\n"
    "cuda: true\ncost: {minutes: 30, per_sm_minutes: 40, size_mb: 200, per_sm_mb: 150}",
)  # fmt: skip
PACKAGE = "fleetbuild.extensions.catalogue"
LARGE = (package("large", "1.0", GPU),)


def config(**grouping: Any) -> Config:
    return Config.model_validate({"grouping": grouping})


def groups(made: PlanDraft) -> dict[str, tuple[str, ...]]:
    return {group.name: group.nodes for group in made.groups}


def merged(fleet: dict[str, Facts], packages: Any = LARGE, **grouping: Any) -> PlanDraft:
    return drafted(fleet, packages, config=config(**grouping))


def fleets_of(kinds: st.SearchStrategy[Facts], *, least: int) -> st.SearchStrategy[Any]:
    return st.lists(kinds, min_size=least, max_size=24).map(
        lambda nodes: {f"n{number:02}": known for number, known in enumerate(nodes)}
    )


SM_SETS = st.sampled_from([(), ("8.6",), ("8.0", "7.5"), ("9.0",)])
fleets = fleets_of(
    st.builds(
        facts,
        rung=st.sampled_from([rung for rung in RUNGS if rung not in ("x86-64", "x86-64-v2")]),
        libc=st.sampled_from(["2.28", "2.36", Libc(family="musl", version="1.2.4")]),
        pythons=st.sampled_from([(python(),), (python(),), (python("3.10.4"),)]),
        sms=SM_SETS,
    ),
    least=1,
)
alike = fleets_of(  # so that much can be merged
    st.builds(facts, rung=st.sampled_from(["avx", "avx2", "avx512", "amx"]), sms=SM_SETS)
    | st.builds(facts, rung=st.sampled_from(["armv8", "armv8.2", "armv8.4sve", "armv9"])),
    least=8,
)
wishes = st.fixed_dictionaries(
    {
        "max_wheel_sets": st.one_of(st.none(), st.integers(1, 12)),
        "optimize_for": st.sampled_from(["auto", "compatibility", "fp32", "int8", "bf16"]),
        "rungs": st.sampled_from(["recipe", "detected"]),
    }
)
packages = st.sampled_from(
    [LARGE, (package("small", "1.0", CPU),), (package("small", "1.0", CPU), *LARGE)]
)


def parts_of(fleet: dict[str, Facts], chosen: Any, settings_: Config) -> list[Part]:
    plain = settings_.model_copy(
        update={"grouping": settings_.grouping.model_copy(update={"max_wheel_sets": None})}
    )
    made = drafted(fleet, chosen, config=plain)
    targets = node_targets(made.eligibility, fleet)
    return [
        Part(
            target=target,
            features=frozenset.intersection(
                *(frozenset(fleet[name].features) for name in fleet if targets.get(name) == target)
            ),
            nodes=list(targets.values()).count(target),
        )
        for target in sorted(set(targets.values()), key=lambda target: target.name)
    ]


@given(alike, packages, wishes)
def test_merging_is_optimal_up_to_eight_groups(fleet, chosen, wish):
    settings_ = config(**wish)
    parts = parts_of(fleet, chosen, settings_)[:8]
    pricing = Pricing([each.recipe for each in chosen], settings_, lambda _: None)
    best: dict[int, float] = {}
    for sets in partitions(parts):
        costs = [pricing.price(each) for each in sets]
        if None not in costs:
            best[len(sets)] = min(best.get(len(sets), math.inf), math.fsum(costs))
    ways = cheapest_partitions(parts, pricing.price)
    assert list(ways) == sorted(best)
    for number, way in ways.items():
        assert math.isclose(way.cost, best[number], rel_tol=1e-9)
        # Two sets with one target would be one wheel set.
        assert len({pricing.target(each) for each in way.sets}) == number


@given(fleets | alike, packages, wishes)
def test_groups_that_must_not_be_merged_never_are(fleet, chosen, wish):
    try:
        made = merged(fleet, chosen, **wish)
    except ConfigError as problem:
        assert wish["max_wheel_sets"] is not None
        fewest = int(problem.fix.split("max_wheel_sets to ")[1].split()[0])
        assert fewest > wish["max_wheel_sets"]
        assert len(merged(fleet, chosen, **{**wish, "max_wheel_sets": fewest}).groups) == fewest
        return
    if wish["max_wheel_sets"] is not None:
        assert len(made.groups) <= wish["max_wheel_sets"]
    own = node_targets(made.eligibility, fleet)
    for group in made.groups:
        for name in group.nodes:
            known = fleet[name]
            assert group.target.arch == known.arch
            assert group.target.libc.family == known.libc.family
            assert group.target.python == own[name].python
            assert set(group.target.features) <= set(known.features)
            assert bool(group.target.sms) == bool(own[name].sms)
            assert set(own[name].sms) <= set(group.target.sms)
        carried = {sm for name in group.nodes for sm in own[name].sms}
        assert set(group.target.sms) == carried


@given(fleets | alike, packages, wishes, st.randoms(use_true_random=False))
def test_the_order_of_nodes_decides_nothing(fleet, chosen, wish, random):
    names = list(fleet)
    random.shuffle(names)
    outcomes = []
    for order in (list(fleet), names):
        try:
            made = merged({name: fleet[name] for name in order}, chosen, **wish)
            outcomes.append((groups(made), made.merged))
        except ConfigError as problem:
            outcomes.append((problem.message, problem.fix))
    assert outcomes[0] == outcomes[1]


def test_nothing_is_merged_without_need():
    fleet = {"a": facts("avx"), "b": facts("avx2"), "c": facts("avx512")}
    assert not merged(fleet).merged.tradeoffs
    made = merged(fleet, max_wheel_sets=3)
    assert len(made.groups) == 3
    assert [(row.wheel_sets, row.chosen) for row in made.merged.tradeoffs] == [
        (3, True), (2, False), (1, False),
    ]  # fmt: skip
    assert not made.merged.merged_from
    assert merged({"a": facts(pythons=())}, max_wheel_sets=1).groups == ()


def test_max_wheel_sets_merges_the_groups_that_lose_least():
    fleet = {
        "a": facts("avx"),
        **{f"b{number}": facts("avx2") for number in range(9)},
        "c": facts("avx512"),
    }
    # One node without AVX-512 against nine without AVX2.
    made = merged(fleet, max_wheel_sets=2)
    assert set(groups(made)) == {"cpu-avx-cp311", "cpu-avx2-cp311"}
    assert made.merged.merged_from == {"c": "cpu-avx512-cp311"}
    (loss,) = made.merged.tradeoffs[1].losses
    assert (loss.nodes, loss.wheel_set, loss.rung) == (1, "cpu-avx2-cp311", "avx512")
    assert loss.slower == 0.111  # (1/2 + 1/8) / (1/2 + 1/16) - 1
    assert set(groups(merged(fleet, max_wheel_sets=1))) == {"cpu-avx-cp311"}


def test_armv9_shares_the_wheel_of_armv84_with_sve():
    fleet = {"v1": facts("armv8.4sve"), "v2": facts("armv9")}
    assert groups(merged(fleet, max_wheel_sets=1)) == {"cpu-armv8.4sve-cp311": ("v1", "v2")}
    # What the nodes have decides, not what their rungs are called.
    fleet["v2"] = facts("armv9", features=tuple(sorted(RUNGS["armv9"].features - {"bf16"})))
    assert groups(merged(fleet, max_wheel_sets=1)) == {"cpu-armv8.2-cp311": ("v1", "v2")}


def test_merged_groups_unite_their_sms_and_cpu_nodes_get_none():
    fleet = {
        "cpu": facts("avx2"), "a": facts("avx2", sms=("8.6",)), "b": facts("avx2", sms=("7.5",)),
        "c": facts("avx2", sms=("9.0", "8.6")),
    }  # fmt: skip
    assert groups(merged(fleet, max_wheel_sets=2)) == {
        "cpu-avx2-cp311": ("cpu",), "sm75.sm86.sm90-avx2-cp311": ("a", "b", "c"),
    }  # fmt: skip
    with pytest.raises(ConfigError, match="need 2 wheel sets at least") as caught:
        merged(fleet, max_wheel_sets=1)
    assert "x86_64 cp311 glibc with GPU code; x86_64 cp311 glibc without" in caught.value.message
    assert "Set grouping.max_wheel_sets to 2 or more" in caught.value.fix
    # a goes with c, who has its SM already.
    made = merged(fleet, max_wheel_sets=3)
    assert "sm86.sm90-avx2-cp311" in groups(made)
    (loss,) = next(row for row in made.merged.tradeoffs if row.chosen).losses
    assert (loss.group, loss.sms, loss.rung, loss.slower) == (
        "sm86-avx2-cp311", ("9.0",), None, 0,
    )  # fmt: skip


def test_a_gpu_node_loses_a_rung_before_it_gets_foreign_sms_unless_speed_matters_most():
    fleet = {
        "a": facts("avx512", sms=("8.6",)), "b": facts("avx2", sms=("8.6",)),
        **{f"c{number}": facts("avx512", sms=("9.0",)) for number in range(40)},
    }  # fmt: skip
    assert set(groups(merged(fleet, max_wheel_sets=2))) == {
        "sm86-avx2-cp311", "sm90-avx512-cp311",
    }  # fmt: skip
    assert set(groups(merged(fleet, max_wheel_sets=2, optimize_for="fp32"))) == {
        "sm86-avx2-cp311", "sm86.sm90-avx512-cp311",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (
            {"sms": ("3.5",)}, {"sms": ("12.0",)},
            "SM 3.5 needs CUDA 11.8 or older; SM 12.0 needs CUDA 12.8 or newer",
        ),
        (
            {"sms": ("8.6",), "driver": "470.82.01"}, {"sms": ("12.0",), "driver": "570.86.10"},
            "driver 470.82.01 runs CUDA 11.8 or older; SM 12.0 needs CUDA 12.8 or newer",
        ),
    ],
)  # fmt: skip
def test_groups_that_no_toolkit_can_serve_together_stay_apart(one, other, why):
    fleet = {
        "one": facts("avx2", **one), "like-one": facts("avx2", **{**one, "driver": None}),
        "other": facts("avx2", **other),
    }  # fmt: skip
    made = merged(fleet, max_wheel_sets=2)
    assert sorted(groups(made).values()) == [("like-one", "one"), ("other",)]
    with pytest.raises(ConfigError) as caught:
        merged(fleet, max_wheel_sets=1)
    assert f"x86_64 cp311 glibc with GPU code in 2 ({why})" in caught.value.message


def test_compatibility_gives_the_fewest_possible_wheel_sets():
    fleet = {
        "a": facts("avx"), "b": facts("avx512"), "c": facts("avx512", sms=("8.6",)),
        "d": facts("avx2", sms=("9.0",)), "e": facts("avx512", pythons=(python("3.10.4"),)),
    }  # fmt: skip
    made = merged(fleet, optimize_for="compatibility")
    assert set(groups(made)) == {
        "cpu-avx-cp311", "cpu-avx512-cp310", "sm86.sm90-avx2-cp311",
    }  # fmt: skip
    assert made.merged.tradeoffs[-1].chosen
    with pytest.raises(ConfigError, match="need 3 wheel sets at least"):
        merged(fleet, optimize_for="compatibility", max_wheel_sets=2)


@pytest.mark.parametrize(
    ("use", "names"),
    [
        ("auto", {"avx512"}),
        ("fp32", {"avx512"}),
        ("int8", {"avx512", "avx512vnni", "amx"}),
        ("bf16", {"avx512", "avx512bf16", "amx"}),
    ],
)
def test_optimize_for_adds_the_rungs_that_the_recipe_lists_for_it(use, names):
    fleet = {rung: facts(rung) for rung in ("avx512", "avx512vnni", "avx512bf16", "amx")}
    assert {group.target.isa for group in merged(fleet, optimize_for=use).groups} == names


def test_int8_keeps_vnni_where_fp32_would_not():
    fleet = {"a": facts("avx2"), "b": facts("avx512"), "c": facts("avx512vnni")}
    rungs = recipe_of("r", "avx2", "avx512", "avx512vnni", more="rungs_for: {int8: [avx512vnni]}")
    chosen = (package("r", "1", rungs),)
    assert {g.target.isa for g in merged(fleet, chosen, max_wheel_sets=2).groups} == {
        "avx2", "avx512",
    }  # fmt: skip
    int8 = merged(fleet, chosen, max_wheel_sets=2, optimize_for="int8")
    assert {group.target.isa for group in int8.groups} == {"avx2", "avx512vnni"}


def test_measured_speeds_come_before_assumed_ones():
    fleet = {"a": facts("avx"), "b": facts("avx2"), "c": facts("avx512")}
    table = load("speeds.yml", PACKAGE)["measured"]["hnswlib"]
    row = merged(fleet, (package(),), max_wheel_sets=1).merged.tradeoffs[-1]
    assert [loss.slower for loss in row.losses] == [
        pytest.approx(table[rung] / table["avx"] - 1, abs=0.001) for rung in ("avx2", "avx512")
    ]


def test_estimates_count_only_wheels_that_are_built():
    fleet = {"a": facts("avx", sms=("8.6",)), "b": facts("avx2", sms=("8.6",)), "c": facts("avx2")}
    flat = recipe_of("flat", "avx", more="cost: {minutes: 5, size_mb: 3}")
    rows = merged(fleet, (*LARGE, package("flat", "1", flat)), max_wheel_sets=2).merged.tradeoffs
    # flat is one wheel for all; large is three, of which two hold an SM.
    assert (rows[0].minutes, rows[0].size_mb) == (3 * 30 + 2 * 40 + 5, 3 * 200 + 2 * 150 + 3)
    assert (rows[1].minutes, rows[1].size_mb) == (2 * 30 + 40 + 5, 2 * 200 + 150 + 3)


def test_the_tables_know_every_rung():
    data = load("speeds.yml", PACKAGE)
    assert all(set(row["throughput"]) == set(RUNGS) for row in data["assumed"].values())
    uses = Grouping.model_fields["optimize_for"].annotation
    assert set(data["weights"]) == set(get_args(uses))


def test_the_plan_shows_the_tradeoffs_and_each_nodes_loss():
    fleet = {"a": facts("avx"), "b": facts("avx2"), "c": facts("avx512")}
    plan = planned(fleet, config=config(max_wheel_sets=2))
    assert {name: node.merged_from for name, node in plan.nodes.items()} == {
        "a": None, "b": "cpu-avx2-cp311", "c": None,
    }  # fmt: skip
    assert [row.wheel_sets for row in plan.tradeoffs] == [3, 2, 1]
    assert dump_plan(plan) == dump_plan(planned(fleet, config=config(max_wheel_sets=2)))
    told = "\n".join(explain_node(plan, fleet["b"], "b"))
    assert "merged: its own group would be cpu-avx2-cp311" in told
    assert "without avx2" in told
    assert "the best that its recipes build for" not in told
    whole = "\n".join(explain_group(plan, fleet, "cpu-avx-cp311"))
    assert "merged: cpu-avx2-cp311 (1 node)" in whole
    assert "2 wheel sets (chosen): 2 min, 1 MB" in whole
    assert "No other merge into this many wheel sets costs less." in told
    assert not any("merged" in line for line in explain_node(plan, fleet["a"], "a"))
    unsure = [row.model_copy(update={"exact": False}) for row in plan.tradeoffs]
    hedged = explain_node(plan.model_copy(update={"tradeoffs": unsure}), fleet["b"], "b")
    assert "too many groups to compare every merge" in "\n".join(hedged)


def test_compatibility_builds_one_wheel_of_torch_for_three_cpus():
    fleet = {"haswell": facts("avx2"), "skylake-sp": facts("avx512"), "sapphire": facts("amx")}
    chosen = (package("torch", "2.13.0"),)
    plan = planned(fleet, packages=chosen, config=config(optimize_for="compatibility"))
    assert {(group.name, group.wheels[0].wheel_version) for group in plan.groups} == {
        ("cpu-avx2-cp311", "2.13.0+cpu.avx2")
    }


@pytest.fixture(scope="module")
def captured() -> dict[str, Facts]:
    """The fleet of the captures."""
    return seed_fleet()


def sizes(made: PlanDraft) -> dict[str, int]:
    return {name: len(nodes) for name, nodes in groups(made).items()}


def test_the_captured_fleet_is_merged_for_torch(captured):
    chosen = (package("torch", "2.13.0"),)
    cpu = {
        "cpu-armv8.2-cp311": 1, "cpu-armv8.4sve-cp311": 1, "cpu-avx2-cp311": 1,
        "cpu-avx512-cp311": 1,
    }  # fmt: skip
    assert sizes(merged(captured, chosen, max_wheel_sets=10)) == {
        **cpu, "sm75-avx512-cp311": 1, "sm75.sm80-avx512-cp311": 1, "sm86-avx-cp311": 2,
        "sm86-avx2-cp311": 2, "sm89-avx2-cp311": 1, "sm90-avx512-cp311": 1,
    }  # fmt: skip
    # SMs are united before anybody loses a rung.
    assert sizes(merged(captured, chosen, max_wheel_sets=7)) == {
        **cpu, "sm75.sm80.sm90-avx512-cp311": 3, "sm86-avx-cp311": 2,
        "sm86.sm89-avx2-cp311": 3,
    }  # fmt: skip
    assert sizes(merged(captured, chosen, optimize_for="compatibility")) == {
        "cpu-armv8.2-cp311": 2, "cpu-avx2-cp311": 2, "sm75.sm80.sm86.sm89.sm90-avx-cp311": 8,
    }  # fmt: skip
    int8 = sizes(merged(captured, chosen, optimize_for="int8"))
    assert {"cpu-avx512vnni-cp311", "sm75.sm80-avx512vnni-cp311"} <= set(int8)
    assert len(int8) == 10


def test_torch_names_for_a_use_the_rungs_that_speed_it_up():
    recipe = known_recipes()["torch"]
    for use in ("int8", "bf16"):
        pace = load("speeds.yml", PACKAGE)["assumed"][use]["throughput"]
        faster = {
            name
            for name, rung in RUNGS.items()
            if rung.parent and pace[name] > pace[rung.parent.name] and name not in recipe.rungs
        }
        assert set(recipe.rungs_for[use]) == faster
