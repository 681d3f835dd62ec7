"""Rungs: the table of SPEC, their order, and the flags that spell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.hardware.flags import flags, unknown_features
from fleetbuild.hardware.rungs import RUNGS, Rung, best, why_not

V2 = {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
N1 = {"asimd", "atomics", "asimdhp", "asimddp"}
TABLE = [
    ("x86-64", "x86_64", set(), "x8664"),
    ("x86-64-v2", "x86_64", V2, "x8664v2"),
    ("avx", "x86_64", V2 | {"avx"}, "avx"),
    ("avx2", "x86_64", V3, "avx2"),
    ("avx512", "x86_64", V4, "avx512"),
    ("avx512vnni", "x86_64", V4 | {"avx512_vnni"}, "avx512vnni"),
    ("avx512bf16", "x86_64", V4 | {"avx512_vnni", "avx512_bf16"}, "avx512bf16"),
    (
        "amx",
        "x86_64",
        V4 | {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"},
        "amx",
    ),
    ("armv8", "aarch64", {"asimd"}, "armv8"),
    ("armv8.2", "aarch64", N1, "armv8.2"),
    ("armv8.4sve", "aarch64", N1 | {"sve", "bf16", "i8mm"}, "armv8.4sve"),
    ("armv9", "aarch64", N1 | {"sve", "bf16", "i8mm", "sve2"}, "armv9"),
]

rungs = st.sampled_from(list(RUNGS.values()))
feature_sets = st.frozensets(st.sampled_from(sorted(set().union(*(r[2] for r in TABLE)))))


def test_the_rungs_agree_with_the_specification() -> None:
    assert [(r.name, r.arch, set(r.features), r.label) for r in RUNGS.values()] == TABLE


def test_a_rung_is_shown_by_its_name() -> None:
    assert str(RUNGS["avx2"]) == "avx2"


def test_the_order_of_rungs_says_which_code_runs_where() -> None:
    assert RUNGS["avx"] < RUNGS["avx2"] <= RUNGS["avx512"] < RUNGS["amx"]
    assert RUNGS["armv9"] > RUNGS["armv8.2"] >= RUNGS["armv8"]
    assert not RUNGS["avx"] < RUNGS["avx"]
    assert not RUNGS["x86-64"] <= RUNGS["armv8"]  # nothing of one architecture runs on another


def test_armv9_has_all_that_graviton3_has() -> None:
    """Neoverse N2 and V2 (Graviton4, Grace) have bf16 and i8mm: they lose no int8 product."""
    assert RUNGS["armv8.4sve"] < RUNGS["armv9"]
    assert {"bf16", "i8mm"} <= RUNGS["armv9"].features
    for compiler, version in (("gcc", "12.2.0"), ("gcc", "15.1.0"), ("clang", "16")):
        assert {"i8mm", "bf16"} <= set(flags(RUNGS["armv9"], compiler, version).split("+"))


@given(rungs, rungs, rungs)
def test_the_order_is_a_partial_order(a: Rung, b: Rung, c: Rung) -> None:
    assert a.__le__(a)
    assert a is b or not a <= b <= a
    assert not a <= b <= c or a <= c


def test_a_rung_stands_after_all_that_it_contains() -> None:
    order = list(RUNGS.values())
    assert all(order.index(a) <= order.index(b) for a in order for b in order if a <= b)


@pytest.mark.parametrize("rung", RUNGS.values(), ids=str)
def test_a_cpu_with_exactly_a_rungs_features_is_of_that_rung(rung: Rung) -> None:
    assert best(rung.features, rung.arch) is rung


def test_one_missing_feature_is_enough_to_miss_a_rung() -> None:
    assert best(V4 - {"movbe"}, "x86_64") is RUNGS["avx"]


def test_of_incomparable_rungs_the_later_one_is_best() -> None:
    assert best(N1 | {"sve", "bf16", "i8mm", "sve2"}, "aarch64") is RUNGS["armv9"]


def test_only_allowed_rungs_are_taken() -> None:
    assert best(V4, "x86_64", {"avx", "avx2"}) is RUNGS["avx2"]
    assert best(V2, "x86_64", {"avx"}) is None


def test_an_architecture_without_rungs_has_no_best() -> None:
    assert best(V4, "ppc64le") is None
    assert best(V4, None) is None
    assert best(set(), "aarch64") is None


@given(feature_sets, st.sampled_from(["x86_64", "aarch64"]))
def test_the_best_rung_is_within_the_features_and_none_above_it_is(
    features: frozenset[str], arch: str
) -> None:
    rung = best(features, arch)
    assert rung is None or rung.features <= features
    assert not any(r > rung and r.features <= features for r in RUNGS.values() if rung)


def test_why_not_is_a_sentence_or_nothing() -> None:
    ivy_bridge = V2 | {"avx", "f16c"}
    assert why_not(RUNGS["avx2"], ivy_bridge) == (
        "avx2 needs abm, avx2, bmi1, bmi2, fma and movbe, which this CPU does not show."
    )
    assert why_not(RUNGS["avx"], V2) == "avx needs avx, which this CPU does not show."
    assert why_not(RUNGS["avx"], ivy_bridge) == ""


HIDDEN = " -U__ARM_FEATURE_CRC32 -U__ARM_FEATURE_QRDMX"
SPELLED_V2 = "-march=x86-64 -mcx16 -msahf -mpopcnt -msse3 -mssse3 -msse4.1 -msse4.2"


@pytest.mark.parametrize(
    ("rung", "compiler", "version", "expected"),
    [
        ("x86-64", "gcc", "4.8.5", "-march=x86-64"),
        ("x86-64-v2", "gcc", "12.2.0", "-march=x86-64-v2"),
        ("avx", "gcc", "11", "-march=x86-64-v2 -mavx"),
        ("avx2", "clang", "12.0.1", "-march=x86-64-v3"),
        ("avx512", "gcc", "13.1.0", "-march=x86-64-v4"),
        ("avx512vnni", "gcc", "12.2.0", "-march=x86-64-v4 -mavx512vnni"),
        ("avx512bf16", "/usr/bin/clang++", "18", "-march=x86-64-v4 -mavx512vnni -mavx512bf16"),
        ("x86-64-v2", "gcc", "10.5.0", SPELLED_V2),
        ("x86-64-v2", "clang", "11.0.0", SPELLED_V2),
        ("avx", "g++", None, SPELLED_V2 + " -mavx"),
        ("avx", "gcc", "who knows", SPELLED_V2 + " -mavx"),
        ("armv8", "gcc", None, "-march=armv8-a"),
        # gcc before 15 has those intrinsics for armv8.2-a alone, which has more than the rung.
        ("armv8.2", "gcc", "12.2.0", "-march=armv8.2-a+lse+fp16+dotprod" + HIDDEN),
        ("armv8.2", "gcc", None, "-march=armv8.2-a+lse+fp16+dotprod" + HIDDEN),
        ("armv8.2", "gcc", "15.1.0", "-march=armv8-a+lse+fp16+dotprod"),
        ("armv8.4sve", "gcc", "12.2.0", "-march=armv8.2-a+lse+fp16+dotprod+sve+bf16+i8mm" + HIDDEN),
        ("armv9", "clang", "16", "-march=armv8-a+lse+fp16+dotprod+sve+bf16+i8mm+sve2"),
        # What a compiler is too old to know is left out.
        ("armv9", "gcc", "9.4.0", "-march=armv8.2-a+lse+fp16+dotprod+sve" + HIDDEN),
        ("armv9", "gcc", "6.3.0", "-march=armv8-a+lse"),
    ],
)
def test_a_rung_gives_the_flags_of_each_compiler(
    rung: str, compiler: str, version: str | None, expected: str
) -> None:
    assert flags(RUNGS[rung], compiler, version) == expected


@given(rungs, st.sampled_from(["gcc", "clang"]), st.none() | st.from_regex(r"\d{1,2}\.\d"))
def test_no_flag_names_the_native_cpu(rung: Rung, compiler: str, version: str | None) -> None:
    assert "native" not in flags(rung, compiler, version)


@pytest.mark.parametrize(
    ("rung", "compiler", "version", "expected"),
    [
        ("avx512bf16", "gcc", "7.5.0", {"avx512_vnni", "avx512_bf16"}),
        ("avx512bf16", "gcc", "10.2.1", set()),
        ("amx", "clang", "10.0.0", {"amx_tile", "amx_int8", "amx_bf16"}),
        ("armv9", "gcc", "9.4.0", {"bf16", "i8mm", "sve2"}),
        ("armv9", "g++", None, set()),
        ("avx2", "gcc", "who knows", set()),
    ],
)
def test_features_unknown_to_an_old_compiler_are_listed(
    rung: str, compiler: str, version: str | None, expected: set[str]
) -> None:
    assert unknown_features(RUNGS[rung], compiler, version) == expected
