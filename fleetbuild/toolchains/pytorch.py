"""PyTorch: the Python, CUDA, gcc and GPUs that each version supports, and the evidence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from fleetbuild.hardware.data import load
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import TOOLKITS, minor, runs_on

Evidence = Literal["released", "reported", "buildable"]
EVIDENCE: tuple[Evidence, ...] = ("released", "reported", "buildable")  # the best first


@dataclass(frozen=True)
class Release:
    """A CUDA version that PyTorch releases a torch with."""

    status: Literal["stable", "experimental"]
    cudnn: str | None
    sms: dict[str, tuple[str, ...]]  # architecture -> the SMs that the wheel has code for


@dataclass(frozen=True)
class Pythons:
    """The Python versions that a torch is for."""

    oldest: str
    newest: str | None  # None: not known
    experimental: tuple[str, ...] = ()
    free_threaded: tuple[str, ...] = ()

    def fits(self, tag: str) -> bool:
        """Return whether it supports this ABI, such as cp311 or cp314t."""
        version = python_of(tag)
        if tag.endswith("t") and self.newest is not None:
            return version in self.free_threaded
        return version_key(self.oldest) <= version_key(version) and (
            self.newest is None
            or version_key(version) <= version_key(self.newest)
            or version in self.experimental
        )

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}" if self.newest else f"{self.oldest} or newer"


@dataclass(frozen=True)
class KnownBreakage:
    """From this toolkit of its major version on, a torch is reported not to build."""

    cuda: str
    because: str


@dataclass(frozen=True)
class Torch:
    """One minor version of torch."""

    name: str  # "2.13"
    newest: str  # its newest patch release
    python: Pythons
    sms: frozenset[str]  # SMs that the build of its extensions accepts
    cxx: int
    gcc: str
    cudnn: str  # the major version of cuDNN that it is for
    cudnn_from: str | None
    cuda_from: str
    build: str
    pypi: str | None  # the CUDA version of the wheel for x86_64 on PyPI
    releases: dict[str, Release]
    reported: dict[str, frozenset[str]]  # CUDA version -> SMs it is reported to work on
    # What others publish: CUDA version -> architecture -> the SMs that it has code for.
    built: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    broken: KnownBreakage | None = None
    known: bool = True  # False: newer than the table

    @property
    def cuda_to(self) -> str | None:
        """The newest toolkit that can build it.

        CUDA breaks its API only with major versions. So this is the last toolkit of the newest
        major version that PyTorch releases it with, before the first toolkit reported to fail.
        """
        if not self.releases:
            return None
        major = max(version_key(cuda)[0] for cuda in self.releases)
        end = min((major + 1,), version_key(self.broken.cuda) if self.broken else (major + 1,))
        return [cuda for cuda in TOOLKITS if (major,) <= version_key(cuda) < end][-1]

    def read_on_pypi(self, arch: str) -> bool:
        """Return whether it is known what PyPI's wheel for this architecture contains."""
        arm = (*_DATA["pypi_aarch64"]["cpu"], *_DATA["pypi_aarch64"]["cuda"])
        return self.known and (arch == "x86_64" or self.name in arm)

    def cuda_on_pypi(self, arch: str) -> str | None:
        """Return the CUDA version of PyPI's wheel for this architecture; None for CPUs only."""
        cpu_only = arch == "aarch64" and self.name in _DATA["pypi_aarch64"]["cpu"]
        return None if cpu_only else self.pypi

    def unsupported_sms(self, sms: Iterable[str]) -> list[str]:
        """Return the SMs that it does not support; empty if it is newer than the table."""
        return [sm for sm in sms if self.known and sm not in self.sms]

    def has_code_for(self, cuda: str, arch: str, sm: str) -> bool:
        """Return whether PyTorch's wheel for this CUDA and architecture runs on this SM."""
        release = self.releases.get(cuda)
        return release is not None and any(runs_on(code, sm) for code in release.sms.get(arch, ()))

    def evidence(self, cuda: str, sms: Iterable[str], archs: Collection[str]) -> Evidence:
        """Return how well a build with this CUDA for these SMs is known to work. An SM counts for a
        release if its wheel runs on it, or if this torch is reported to work on it."""
        sms = tuple(sms)
        works_on = frozenset().union(*self.reported.values())
        if cuda in self.releases and all(
            sm in works_on or all(self.has_code_for(cuda, arch, sm) for arch in archs) for sm in sms
        ):
            return "released"
        if set(sms) <= self.reported.get(cuda, frozenset()) or self.built_by_others(
            cuda, sms, archs
        ):
            return "reported"
        return "buildable"

    def built_by_others(self, cuda: str, sms: Iterable[str], archs: Collection[str]) -> bool:
        """Return whether conda-forge or others publish it for this CUDA with code for these SMs."""
        codes = self.built.get(cuda, {})
        return all(any(runs_on(code, sm) for code in codes.get(arch, ()))
                   for arch in archs for sm in sms)  # fmt: skip


def _torch(name: str, row: dict[str, Any]) -> Torch:
    python = row["python"]
    return Torch(
        name=name,
        newest=row["newest"],
        python=Pythons(
            python["from"],
            python["to"],
            tuple(python["experimental"]),
            tuple(python["free_threaded"]),
        ),
        sms=frozenset(row["sms"].split()),
        cxx=row["cxx"],
        gcc=row["gcc"],
        cudnn=max(str(each["cudnn"] or "0") for each in row["cuda"].values()).split(".")[0],
        cudnn_from=row["cudnn_from"],
        cuda_from=row["cuda_from"],
        build=row["build"],
        pypi=row["pypi"],
        releases={cuda: _release(release) for cuda, release in row["cuda"].items()},
        reported={version["cuda"]: frozenset(version["sms"]) for version in row["reported"]},
        built={
            each["cuda"]: dict.fromkeys(each["archs"], tuple(each["sms"]))
            for each in _DATA["combinations"]["built"]
            if name in each["torch"]
        },
        broken=_known_breakage(name),
    )


def _known_breakage(name: str) -> KnownBreakage | None:
    rows = [row for row in _DATA["combinations"]["broken"] if name in row["torch"]]
    first = min(rows, key=lambda row: version_key(row["from"]), default=None)
    return KnownBreakage(first["from"], first["because"]) if first else None


def _release(row: dict[str, Any]) -> Release:
    sms = {arch: tuple(codes) for arch, codes in row["sms"].items() if codes}
    return Release(row["status"], row["cudnn"], sms)


_DATA = load("pytorch.yml", "fleetbuild.toolchains")
TORCHES: dict[str, Torch] = {name: _torch(name, row) for name, row in _DATA["torch"].items()}
COMPANIONS: dict[str, dict[str, SpecifierSet]] = {  # name -> its version -> the torch it requires
    name: {version: SpecifierSet(wanted) for version, wanted in table["torch"].items()}
    for name, table in _DATA["companions"].items()
}
OLDEST, *_, NEWEST = TORCHES.values()


SVE_GCC: str = _DATA["sve"]["gcc"]  # the oldest that compiles the SVE kernels


def needs_sve_gcc(torch: str, isa: str) -> bool:
    """Return whether a torch for this rung is configured only with a gcc for the SVE kernels."""
    plain, sve = public_version(torch), _DATA["sve"]
    return plain is not None and isa in sve["rungs"] and Version(sve["torch"]) <= plain


def find_torch(version: str) -> Torch | None:
    """Return the row of this version; None if it is older than the table, or not a version.

    A version newer than the table gets the minimum CUDA, Python and compiler of the newest row.
    """
    plain = public_version(version)
    if plain is None:
        return None
    name = f"{plain.major}.{plain.minor}"
    if name in TORCHES:
        return TORCHES[name]
    if version_key(name) < version_key(NEWEST.name):
        return None
    return replace(
        NEWEST,
        name=name,
        newest=str(plain),
        python=Pythons(NEWEST.python.oldest, None),
        pypi=None,
        releases={},
        reported={},
        built={},
        broken=None,
        known=False,
    )


@lru_cache(maxsize=1000)  # a plan asks for the same few for every node
def public_version(version: str) -> Version | None:
    """Return the version without its local part; None if the text is not a version."""
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return None


def wanted_torch(companion: str, version: str) -> SpecifierSet | None:
    """Return the torch that this version of a companion requires; None if unknown.

    A patch release missing from the table requires the same minor version as its siblings.
    """
    plain = public_version(version)
    table = COMPANIONS.get(companion, {})
    if plain is None or str(plain) in table:
        return table.get(str(plain))
    siblings = [
        wanted for known, wanted in table.items() if minor(known) == f"{plain.major}.{plain.minor}"
    ]
    return SpecifierSet(_same_minor(siblings[-1])) if siblings else None


def _same_minor(wanted: SpecifierSet) -> str:
    text = str(wanted)
    return f"=={minor(text.removeprefix('=='))}.*" if text.startswith("==") else text


def companion_for(companion: str, torch: str) -> str | None:
    """Return the newest version of a companion that works with this torch."""
    table = COMPANIONS.get(companion, {})
    fitting = [version for version, wanted in table.items() if _accepts(wanted, torch)]
    exact = [version for version in fitting if str(table[version]).startswith("==")]
    return max(exact or fitting, key=version_key, default=None)


def fits_companion(companion: str, version: str, torch: str) -> bool:
    """Return whether this companion works with this torch; True if unknown."""
    wanted = wanted_torch(companion, version)
    return wanted is None or _accepts(wanted, torch)


def _accepts(wanted: SpecifierSet, torch: str) -> bool:
    plain = public_version(torch)
    return plain is not None and wanted.contains(plain, prereleases=True)


def python_of(tag: str) -> str:
    """Return 3.11 for cp311 and cp311t."""
    match = re.match(r"cp(\d)(\d{1,3})", tag, re.ASCII)
    return f"{match[1]}.{match[2]}" if match else "0"
