"""What each torch goes with: the table is whole, and says what PyTorch's own files say."""

from __future__ import annotations

import pytest
from packaging.version import Version

from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import SMS
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import TOOLKITS, Gcc, compiles_for
from fleetbuild.toolchains.pytorch import (
    COMPANIONS,
    NEWEST,
    OLDEST,
    TORCHES,
    companion_for,
    find_torch,
    fits_companion,
    public_version,
    python_of,
    wanted_torch,
)

_DATA = load("pytorch.yml", "fleetbuild.toolchains")
_GRADES = {"measured", "documented", "reported", "inferred"}
_EACH = pytest.mark.parametrize("name", TORCHES)


@_EACH
def test_every_row_has_sources_and_evidence(name: str) -> None:
    row = _DATA["torch"][name]
    facts = set(row) - {"newest", "cuda", "reported", "source", "evidence"}
    assert set(row["evidence"]) == facts
    assert set(row["evidence"].values()) <= _GRADES
    for each in (row, *row["cuda"].values(), *row["reported"]):
        assert each["source"]
        assert set(each["source"]) <= set(_DATA["sources"])
    assert {each["evidence"] for each in (*row["cuda"].values(), *row["reported"])} <= _GRADES


def test_companions_have_sources_and_evidence() -> None:
    for row in _DATA["companions"].values():
        assert row["source"]
        assert row["evidence"] in _GRADES


def test_every_listed_source_is_used() -> None:
    used = {*_DATA["sve"]["source"]}
    for row in _DATA["torch"].values():
        for each in (row, *row["cuda"].values(), *row["reported"]):
            used.update(each["source"])
    for rows in _DATA["combinations"].values():
        for each in rows:
            assert each["evidence"] in _GRADES
            assert set(each["torch"]) <= set(TORCHES)
            used.update(each["source"])
    assert used == set(_DATA["sources"])


@_EACH
def test_every_range_is_ordered(name: str) -> None:
    torch = TORCHES[name]
    assert torch.python.newest is not None
    assert version_key(torch.python.oldest) < version_key(torch.python.newest)
    for version in torch.python.experimental:
        assert version_key(version) > version_key(torch.python.newest)
    assert torch.cuda_to is not None
    assert version_key(torch.cuda_from) <= version_key(torch.cuda_to)
    assert public_version(torch.newest) == Version(torch.newest)
    assert torch.newest.startswith(name + ".")
    assert torch.pypi in torch.releases


@_EACH
def test_every_released_combination_is_buildable(name: str) -> None:
    torch = TORCHES[name]
    for cuda, release in torch.releases.items():
        assert cuda in TOOLKITS
        assert version_key(torch.cuda_from) <= version_key(cuda) <= version_key(torch.cuda_to or "")
        assert release.status in {"stable", "experimental"}
        for sms in release.sms.values():
            assert all(compiles_for(cuda, sm) for sm in sms)
            assert set(sms) <= torch.sms
            assert list(sms) == sorted(sms, key=version_key)
    for cuda, sms in torch.reported.items():
        assert all(compiles_for(cuda, sm) for sm in sms)


@_EACH
def test_a_compiler_exists_for_all_toolkits_that_may_build_it(name: str) -> None:
    torch = TORCHES[name]
    for cuda, toolkit in TOOLKITS.items():
        if version_key(torch.cuda_from) <= version_key(cuda) <= version_key(torch.cuda_to or ""):
            both = Gcc(torch.gcc) & toolkit.gcc
            assert both.below is not None
            assert version_key(both.least) < version_key(both.below)


def test_requirements_never_fall_with_newer_torches() -> None:
    rows = list(TORCHES.values())
    for key in (
        lambda row: version_key(row.name),
        lambda row: version_key(row.cuda_from),
        lambda row: version_key(row.gcc),
        lambda row: version_key(row.python.oldest),
        lambda row: version_key(row.python.newest),
        lambda row: row.cxx,
        lambda row: version_key(row.pypi),
    ):
        assert [key(row) for row in rows] == sorted(key(row) for row in rows)


# cuda.cmake: "PyTorch requires CUDA … or above."
@pytest.mark.parametrize(
    ("name", "cuda"),
    [
        ("1.13", "10.2"), ("2.0", "11.0"), ("2.8", "11.0"), ("2.9", "12.0"), ("2.11", "12.0"),
        ("2.12", "12.3"), ("2.13", "12.3"), ("2.14", "12.6"), ("2.15", "12.6"),
    ],
)  # fmt: skip
def test_the_oldest_cuda_of_a_torch_is_known(name: str, cuda: str) -> None:
    assert TORCHES[name].cuda_from == cuda


# RELEASE.md, and metadata and file names on PyPI.
@pytest.mark.parametrize(
    ("name", "released", "pythons", "pypi"),
    [
        ("2.0", "11.7 11.8", ("3.8", "3.11"), "11.7"),
        ("2.4", "11.8 12.1 12.4", ("3.8", "3.12"), "12.1"),
        ("2.7", "11.8 12.6 12.8", ("3.9", "3.13"), "12.6"),
        ("2.8", "12.6 12.8 12.9", ("3.9", "3.13"), "12.8"),
        ("2.10", "12.6 12.8 13.0", ("3.10", "3.14"), "12.8"),
        ("2.13", "12.6 13.0 13.2", ("3.10", "3.14"), "13.0"),
        ("2.14", "12.6 13.0 13.2", ("3.10", "3.14"), "13.0"),
        ("2.15", "13.0 13.2", ("3.11", "3.15"), "13.2"),
    ],
)
def test_the_released_cuda_versions_of_a_torch_are_known(
    name: str, released: str, pythons: tuple[str, str], pypi: str
) -> None:
    torch = TORCHES[name]
    assert list(torch.releases) == released.split()
    assert (torch.python.oldest, torch.python.newest) == pythons
    assert torch.pypi == pypi


# The list of architectures in the libraries of the wheels on PyPI.
@pytest.mark.parametrize(
    ("name", "arch", "sms"),
    [
        ("2.8", "x86_64", "7.0 7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.9", "x86_64", "7.0 7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.10", "x86_64", "7.0 7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.11", "x86_64", "7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.13", "x86_64", "7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.15", "x86_64", "7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.13", "aarch64", "8.0 9.0 10.0 11.0 12.0"),
        ("2.15", "aarch64", "8.0 9.0 10.0 11.0 12.0"),
    ],
)
def test_sms_of_published_wheels(name: str, arch: str, sms: str) -> None:
    torch = TORCHES[name]
    assert torch.releases[torch.pypi or ""].sms[arch] == tuple(sms.split())


@pytest.mark.parametrize(
    ("name", "cuda", "arch", "sm", "runs"),
    [
        ("2.13", "13.0", "x86_64", "8.9", True),  # by 8.6
        ("2.13", "13.0", "x86_64", "12.1", True),  # by 12.0
        ("2.13", "13.0", "x86_64", "7.0", False),
        ("2.13", "12.6", "x86_64", "6.1", True),  # by 6.0
        ("2.13", "12.6", "x86_64", "12.0", False),
        ("2.13", "12.6", "aarch64", "7.5", False),
        ("2.13", "13.0", "aarch64", "8.7", False),  # a Jetson
        ("2.13", "12.4", "x86_64", "8.6", False),  # not released
        ("2.7", "11.8", "x86_64", "3.7", True),
        ("2.7", "11.8", "x86_64", "3.5", False),
        ("2.7", "11.8", "aarch64", "9.0", False),
        ("2.11", "12.8", "x86_64", "7.0", False),
        ("2.10", "12.8", "x86_64", "7.0", True),
    ],
)
def test_whether_a_wheel_has_code_for_an_sm(
    name: str, cuda: str, arch: str, sm: str, runs: bool
) -> None:
    assert TORCHES[name].has_code_for(cuda, arch, sm) is runs


@pytest.mark.parametrize(
    ("name", "cuda", "sms", "evidence"),
    [
        ("2.13", "13.0", ["8.6", "9.0"], "released"),
        ("2.13", "13.2", ["8.6"], "released"),
        ("2.13", "12.4", ["8.6"], "buildable"),
        ("2.11", "12.8", ["7.0"], "buildable"),  # no code for it in that wheel
        ("2.11", "12.6", ["7.0"], "released"),
        ("2.0", "11.8", ["3.5"], "released"),  # 2.0 is known to work on 3.5
        ("2.0", "11.4", ["3.5"], "reported"),
        ("2.0", "11.4", ["3.5", "8.6"], "buildable"),
        ("2.0", "11.5", ["3.5"], "buildable"),
        ("2.7", "11.8", ["3.5"], "buildable"),
        ("2.7", "11.8", ["3.7"], "released"),
    ],
)
def test_a_combination_has_the_listed_evidence(
    name: str, cuda: str, sms: list[str], evidence: str
) -> None:
    assert TORCHES[name].evidence(cuda, sms, ("x86_64",)) == evidence


def test_evidence_holds_for_all_architectures() -> None:
    torch = TORCHES["2.13"]
    assert torch.evidence("12.6", ["7.5"], ("x86_64",)) == "released"
    assert torch.evidence("12.6", ["7.5"], ("aarch64", "x86_64")) == "buildable"


@pytest.mark.parametrize(
    ("name", "newest"),
    [("2.2", "12.3"), ("2.3", "12.8"), ("2.4", "12.8"), ("2.5", "12.9"), ("1.13", "11.8")],
)
def test_a_toolkit_that_is_reported_not_to_build_it_ends_the_range(name: str, newest: str) -> None:
    assert TORCHES[name].cuda_to == newest


@pytest.mark.parametrize(
    ("name", "cuda", "sms", "archs", "evidence"),
    [
        ("2.8", "12.9", ["8.9"], ("x86_64",), "released"),  # as an experiment
        ("2.12", "12.9", ["8.9"], ("x86_64",), "reported"),  # by code for 8.6
        ("2.12", "12.9", ["5.0", "12.0"], ("x86_64",), "reported"),
        ("2.12", "12.9", ["10.3"], ("x86_64",), "reported"),
        ("2.12", "12.9", ["8.6"], ("aarch64", "x86_64"), "buildable"),
        ("2.12", "12.8", ["8.6"], ("x86_64",), "buildable"),
    ],
)
def test_builds_published_by_others_are_evidence(
    name: str, cuda: str, sms: list[str], archs: tuple[str, ...], evidence: str
) -> None:
    assert TORCHES[name].evidence(cuda, sms, archs) == evidence


@pytest.mark.parametrize(
    ("name", "tag", "fits"),
    [
        ("2.13", "cp39", False),
        ("2.13", "cp310", True),
        ("2.13", "cp314", True),
        ("2.13", "cp315", True),  # experimental
        ("2.13", "cp316", False),
        ("2.13", "cp314t", True),
        ("2.13", "cp313t", False),
        ("2.0", "cp311", True),
        ("2.0", "cp311t", False),
        ("2.15", "cp310", False),
        ("2.13", "pp310", False),
    ],
)
def test_interpreters_are_read(name: str, tag: str, fits: bool) -> None:
    assert TORCHES[name].python.fits(tag) is fits


def test_a_torch_newer_than_the_table_has_the_newest_rows_minimums() -> None:
    torch = find_torch("2.16.0")
    assert torch is not None
    assert not torch.known
    assert torch.name == "2.16"
    assert torch.cuda_from == NEWEST.cuda_from
    assert torch.cuda_to is None
    assert torch.evidence("13.2", ["8.6"], ("x86_64",)) == "buildable"
    assert torch.unsupported_sms(["99.0"]) == []
    assert torch.python.fits("cp399")
    assert torch.python.fits("cp399t")
    assert not torch.python.fits("cp310")
    assert str(torch.python) == f"{NEWEST.python.oldest} or newer"


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.13.0", "2.13"),
        ("2.13.0+cu130.sm86.avx2", "2.13"),
        ("2.13.0rc1", "2.13"),
        ("2.13", "2.13"),
        ("1.12.1", "1.12"),
        ("1.11.0", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_a_torch_is_found_by_its_version(version: str, name: str | None) -> None:
    torch = find_torch(version)
    assert (torch.name if torch else None) == name


def test_unsupported_sms_of_a_torch_are_listed() -> None:
    assert TORCHES["2.6"].unsupported_sms(["8.6", "12.0"]) == ["12.0"]
    assert TORCHES["2.7"].unsupported_sms(["8.6", "12.0"]) == []
    assert all(torch.sms <= set(SMS) for torch in TORCHES.values())


# requires_dist on PyPI.
@pytest.mark.parametrize(
    ("companion", "version", "torch", "fits"),
    [
        ("torchvision", "0.28.0", "2.13.0", True),
        ("torchvision", "0.20.1", "2.13.0", False),
        ("torchvision", "0.20.9", "2.5.1", True),  # not in the table: like its siblings
        ("torchvision", "0.20.9", "2.13.0", False),
        ("torchvision", "0.29.2", "2.14.1", True),
        ("torchvision", "0.29.2", "2.13.0", False),
        ("torchvision", "0.29.3", "2.15.0", True),
        ("torchvision", "0.29.2", "2.16.0", True),
        ("torchvision", "0.28.0+cu130.sm86.avx2", "2.13.0+cu130.sm86.avx2", True),
        ("torchvision", "0.99.0", "2.13.0", True),  # unknown
        ("torchvision", "nonsense", "2.13.0", True),
        ("torchvision", "0.28.0", "nonsense", False),
        ("torchaudio", "2.11.0", "2.13.0", True),
        ("torchaudio", "2.10.0", "2.11.0", False),
        ("torchaudio", "2.0.2", "2.0.1", True),
        ("hnswlib", "0.8.0", "2.13.0", True),
    ],
)
def test_a_companion_fits_the_listed_torches(
    companion: str, version: str, torch: str, fits: bool
) -> None:
    assert fits_companion(companion, version, torch) is fits


def test_the_newest_companion_for_a_torch_is_found() -> None:
    assert companion_for("torchvision", "2.13.0") == "0.28.0"
    assert companion_for("torchvision", "2.0.1") == "0.15.2"
    assert companion_for("torchvision", "2.14.1") == "0.29.2"
    assert companion_for("torchaudio", "2.0.1") == "2.0.2"
    assert companion_for("torchaudio", "2.15.0") == "2.11.0"
    assert companion_for("torchaudio", "1.11.0") is None
    assert companion_for("hnswlib", "2.13.0") is None
    assert wanted_torch("hnswlib", "0.8.0") is None


@_EACH
def test_every_newest_torch_has_its_companions(name: str) -> None:
    for companion in COMPANIONS:
        version = companion_for(companion, TORCHES[name].newest)
        assert version is not None
        assert fits_companion(companion, version, TORCHES[name].newest)


def test_the_table_has_no_gap() -> None:
    assert OLDEST.name == "1.12"
    assert list(TORCHES) == ["1.12", "1.13", *(f"2.{minor}" for minor in range(16))]


def test_the_python_of_a_tag() -> None:
    assert python_of("cp311") == "3.11"
    assert python_of("cp313t") == "3.13"
    assert python_of("pp310") == "0"
