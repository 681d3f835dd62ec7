"""Compilers' flags, read as the features that they turn on."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from fleetbuild.hardware.flags import features_of_flags, flags, rust_flags
from fleetbuild.hardware.rungs import RUNGS


@pytest.mark.parametrize(
    ("text", "flag", "features"),
    [
        ("-O3 -march=skylake-avx512", "-march=skylake-avx512", RUNGS["avx512"].features),
        ("-march=haswell", "-march=haswell", RUNGS["avx2"].features),
        ("-march=x86-64-v3", "-march=x86-64-v3", RUNGS["avx2"].features),
        ("-DCMAKE_C_FLAGS=-mavx512f", "-mavx512f", {"avx512f"}),
        ("-march=x86-64 -msse4.2", "-msse4.2", {"sse4_2"}),
        ("-march=armv8.2-a+sve", "-march=armv8.2-a+sve", {"atomics", "sve"}),
        (
            "-march=armv9-a -DX",
            "-march=armv9-a",
            RUNGS["armv9"].features - {"asimd", "bf16", "i8mm"},
        ),
    ],
)
def test_a_flag_enables_the_listed_features(text: str, flag: str, features: frozenset[str]) -> None:
    assert features_of_flags(text)[flag] == features


@pytest.mark.parametrize(
    "text",
    [
        "-O3",
        "-mno-avx2 -mtune=haswell",
        "-march=mystery",
        "-mfpmath=sse",
        "x-mavx2",
        "a/-march",
        "",
    ],
)
def test_other_flags_enable_nothing(text: str) -> None:
    assert features_of_flags(text) == {}


def test_the_last_march_counts() -> None:
    assert features_of_flags("-march=haswell -march=x86-64") == {}
    assert set(features_of_flags("-march=x86-64 -mavx -march=haswell")) == {
        "-mavx",
        "-march=haswell",
    }


def test_a_core_of_arm_is_known_by_its_name() -> None:
    assert {"sve", "bf16"} <= features_of_flags("-mcpu=neoverse-v1")["-mcpu=neoverse-v1"]


@pytest.mark.parametrize("rung", RUNGS.values(), ids=str)
@pytest.mark.parametrize("version", ["8", "9.3", "12", "15", None])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_flags_of_a_rung_enable_nothing_beyond_it(
    rung: object, compiler: str, version: str | None
) -> None:
    known = RUNGS[str(rung)]
    for features in features_of_flags(flags(known, compiler, version)).values():
        assert features <= known.features


@pytest.mark.parametrize(
    ("rung", "flags"),
    [
        ("x86-64", ""),
        ("avx", "+avx,+cmpxchg16b,+sse3,+popcnt,+sse4.1,+sse4.2,+ssse3"),
        ("armv8.2", "+neon,+dotprod,+fp16,+lse"),
    ],
)
def test_rustc_flags_enable_exactly_the_features_of_a_rung(rung: str, flags: str) -> None:
    expected = f"-C target-feature={flags}" if flags else ""
    assert rust_flags(RUNGS[rung].features) == expected


@pytest.mark.parametrize("rung", [name for name, rung in RUNGS.items() if rung.arch == "x86_64"])
def test_rustc_knows_every_feature_in_its_flags(rung: str) -> None:
    if shutil.which("rustc") is None:
        pytest.skip("no rustc here")
    listed = ["rustc", "--target", "x86_64-unknown-linux-gnu", "--print", "target-features"]
    said = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    known = {line.split()[0] for line in said.splitlines() if line.startswith("    ")}
    if "amx-tile" not in known:
        pytest.skip("rustc is older than 1.89, which lists no unstable features")
    told = rust_flags(RUNGS[rung].features).partition("=")[2].replace("+", "").split(",")
    assert {name for name in told if name} <= known
