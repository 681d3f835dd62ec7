"""CUDA toolkits: the table is whole, and the rules of NVIDIA's compatibility hold."""

from __future__ import annotations

import pytest

from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import SMS
from fleetbuild.toolchains.cuda import (
    TOOLKITS,
    Gcc,
    compiles_for,
    glibc_limit,
    minor,
    newest_for_driver,
    runs_on,
    serves,
    version_key,
)

_DATA = load("cuda.yml", "fleetbuild.toolchains")
_GRADES = {"measured", "documented", "secondary", "inferred"}


@pytest.mark.parametrize("toolkit", TOOLKITS.values(), ids=str)
def test_every_row_has_sources_and_evidence(toolkit) -> None:
    assert set(toolkit.source) <= set(_DATA["sources"])
    assert toolkit.source
    assert set(toolkit.evidence) == {"driver", "gcc"}
    assert set(toolkit.evidence.values()) <= _GRADES


@pytest.mark.parametrize("toolkit", TOOLKITS.values(), ids=str)
def test_every_range_is_ordered(toolkit) -> None:
    assert toolkit.gcc.below is not None
    assert version_key(toolkit.gcc.least) < version_key(toolkit.gcc.below)
    if toolkit.own_driver:
        assert version_key(toolkit.driver) <= version_key(toolkit.own_driver)


def test_every_listed_source_is_used() -> None:
    assert set(_DATA["sources"]) == {name for each in TOOLKITS.values() for name in each.source}


def test_requirements_never_fall_with_newer_toolkits() -> None:
    rows = list(TOOLKITS.values())
    for key in (
        lambda row: version_key(row.version),
        lambda row: version_key(row.driver),
        lambda row: version_key(row.gcc.below),
        lambda row: version_key(row.own_driver or "9999"),
    ):
        assert [key(row) for row in rows] == sorted(key(row) for row in rows)


def test_first_and_last_toolkits_of_sms_are_toolkits() -> None:
    oldest = version_key(next(iter(TOOLKITS)))
    for sm in SMS.values():
        assert sm.first_cuda in TOOLKITS or version_key(sm.first_cuda) < oldest
        assert sm.last_cuda is None or sm.last_cuda in TOOLKITS
        assert any(compiles_for(toolkit, sm.name) for toolkit in TOOLKITS)


# `ptxas --help` of the wheels on PyPI, and `nvcc --list-gpu-arch`.
_PTXAS = {
    "11.7": "35 37 50 52 53 60 61 62 70 72 75 80 86 87",
    "11.8": "35 37 50 52 53 60 61 62 70 72 75 80 86 87 89 90",
    "12.6": "50 52 53 60 61 62 70 72 75 80 86 87 89 90",
    "12.8": "50 52 53 60 61 62 70 72 75 80 86 87 89 90 100 101 120",
    "12.9": "50 52 53 60 61 62 70 72 75 80 86 87 89 90 100 101 103 120 121",
    "13.0": "75 80 86 87 88 89 90 100 103 110 120 121",
    "13.3": "75 80 86 87 88 89 90 100 103 110 120 121",
    "13.4": "75 80 86 87 88 89 90 100 103 107 110 120 121",
    "13.5": "75 80 86 87 88 89 90 100 103 107 110 120 121",
}


@pytest.mark.parametrize("toolkit", _PTXAS)
def test_the_sms_agree_with_ptxas(toolkit: str) -> None:
    expected = {f"{name[:-1]}.{name[-1]}" for name in _PTXAS[toolkit].split()}
    assert {sm for sm in SMS if compiles_for(toolkit, sm)} == expected


# crt/host_config.h: "gcc versions later than N are not supported!"
@pytest.mark.parametrize(
    ("toolkit", "newest"),
    [
        ("11.7", 11), ("11.8", 11), ("12.0", 12), ("12.3", 12), ("12.4", 13), ("12.6", 13),
        ("12.8", 14), ("12.9", 14), ("13.0", 15), ("13.3", 15), ("13.4", 16), ("13.5", 16),
    ],
)  # fmt: skip
def test_the_newest_gcc_agrees_with_nvcc(toolkit: str, newest: int) -> None:
    gcc = TOOLKITS[toolkit].gcc
    assert gcc.fits(f"{newest}.9.0")
    assert not gcc.fits(f"{newest + 1}.1.0")


@pytest.mark.parametrize(
    ("driver", "newest"),
    [
        ("390.157", None),
        ("440.33.01", "10.2"),
        ("450.36.06", "11.0"),
        ("450.80.02", "11.8"),
        ("470.256.02", "11.8"),
        ("525.60.13", "12.9"),
        ("550.54.15", "12.9"),
        ("580.65.06", "13.5"),
        ("615.1", "13.5"),
    ],
)
def test_the_newest_toolkit_for_a_driver_is_found(driver: str, newest: str | None) -> None:
    assert newest_for_driver(driver) == newest


def test_ptx_needs_the_toolkits_own_driver() -> None:
    assert serves("535.183.01", "12.8")
    assert not serves("535.183.01", "12.8", ptx=True)
    assert serves("570.86.10", "12.8", ptx=True)
    assert serves("615.65", "13.5")
    assert not serves("615.65", "13.5", ptx=True)
    assert serves("620.70.06", "13.5", ptx=True)


@pytest.mark.parametrize(
    ("toolkit", "limit"),
    [("10.2", "2.41"), ("12.9", "2.41"), ("13.0", "2.42"), ("13.1", "2.42"), ("13.2", None)],
)
def test_toolkits_do_not_compile_from_a_glibc_on(toolkit: str, limit: str | None) -> None:
    assert glibc_limit(toolkit) == limit


@pytest.mark.parametrize(
    ("code", "runs", "fails"),
    [
        # Machine code: the same major version, and no older minor version.
        ("8.0", ["8.0", "8.6", "8.9"], ["7.5", "9.0", "8.7"]),
        ("8.6", ["8.6", "8.9"], ["8.0", "9.0", "12.0", "8.7"]),
        ("3.7", ["3.7"], ["3.5", "5.0"]),
        ("10.0", ["10.0", "10.3", "10.7"], ["11.0", "12.0", "9.0"]),
        ("12.0", ["12.0", "12.1"], ["10.0", "11.0"]),
        # A Jetson's code and other GPUs' code do not mix.
        ("8.7", ["8.7"], ["8.6", "8.9", "9.0"]),
        ("7.0", ["7.0", "7.5"], ["7.2"]),
        ("7.2", ["7.2"], ["7.5"]),
        # `a`: that SM alone, PTX as well.
        ("9.0a", ["9.0"], ["10.0", "8.9"]),
        ("10.0a", ["10.0"], ["10.3", "11.0"]),
        ("12.0a+PTX", ["12.0"], ["12.1", "13.0"]),
        # `f`: what ptxas of 13.4 compiles PTX of that target for.
        ("10.0f", ["10.0", "10.3", "10.7"], ["11.0", "12.0"]),
        ("10.3f", ["10.3", "10.7"], ["10.0", "11.0"]),
        ("12.0f", ["12.0", "12.1"], ["10.0", "13.0"]),
        ("10.0f+PTX", ["10.0", "10.3"], ["11.0", "12.0"]),
        # PTX: every SM from its own on, a Jetson's too.
        ("8.0+PTX", ["8.0", "8.7", "9.0", "12.1", "13.0"], ["7.5", "7.0"]),
    ],
)
def test_code_runs_on_the_listed_sms(code: str, runs: list[str], fails: list[str]) -> None:
    assert [sm for sm in runs + fails if runs_on(code, sm)] == runs


@pytest.mark.parametrize("code", ["sm_86", "86", "9.0b", "", "8.6+ptx", "8.6 ", "native"])
def test_an_invalid_sm_is_refused(code: str) -> None:
    with pytest.raises(ValueError, match="is not an SM"):
        runs_on(code, "8.6")


def test_two_gcc_ranges_intersect() -> None:
    both = Gcc("11.3") & Gcc("6", "16")
    assert str(both) == "gcc 11.3 to below 16"
    assert str(Gcc("9.4") & Gcc("7.5")) == "gcc 9.4 or newer"
    assert [v for v in ("11.2.1", "11.3.0", "12.2.0", "15.1", "16.0.0") if both.fits(v)] == [
        "11.3.0",
        "12.2.0",
        "15.1",
    ]


def test_versions_are_compared_as_numbers() -> None:
    assert sorted(["12.10", "12.9", "9.2"], key=version_key) == ["9.2", "12.9", "12.10"]
    assert version_key("unknown") == ()
    assert minor("13.0.88") == "13.0"
    assert minor("13") == "13"
