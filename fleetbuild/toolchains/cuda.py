"""CUDA toolkits: the SMs, drivers and host compilers of each, and which code runs on which SM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import SMS, sm_order
from fleetbuild.text import version_key


@dataclass(frozen=True)
class Gcc:
    """A range of gcc versions, from `least` to before `below`."""

    least: str
    below: str | None = None

    def fits(self, version: str) -> bool:
        """Return whether this gcc version is in the range."""
        return version_key(self.least) <= version_key(version) and (
            self.below is None or version_key(version) < version_key(self.below)
        )

    def __and__(self, other: Gcc) -> Gcc:
        bounds = [gcc.below for gcc in (self, other) if gcc.below]
        return Gcc(
            max(self.least, other.least, key=version_key),
            min(bounds, key=version_key, default=None),
        )

    def __str__(self) -> str:
        return f"gcc {self.least} " + (f"to below {self.below}" if self.below else "or newer")


@dataclass(frozen=True)
class CudaToolkit:
    """One minor version of the CUDA toolkit."""

    version: str  # "13.0"
    driver: str  # the oldest driver that runs what it builds
    own_driver: str | None  # the oldest driver that compiles its PTX, if known
    gcc: Gcc
    source: tuple[str, ...]
    evidence: dict[str, str]


def minor(version: str) -> str:
    """Return 13.0 for 13.0.88."""
    return ".".join(version.split(".")[:2])


def _toolkit(version: str, row: dict[str, Any]) -> CudaToolkit:
    gcc = Gcc(*row["gcc"])
    source = tuple(row["source"])
    return CudaToolkit(version, row["driver"], row["own_driver"], gcc, source, row["evidence"])


_DATA = load("cuda.yml", "fleetbuild.toolchains")
TOOLKITS: dict[str, CudaToolkit] = {  # oldest first
    version: _toolkit(version, row) for version, row in _DATA["toolkits"].items()
}


def compiles_for(toolkit: str, sm: str) -> bool:
    """Return whether this toolkit compiles for the SM."""
    known = SMS[sm]
    since_first = version_key(known.first_cuda) <= version_key(toolkit)
    return since_first and (
        known.last_cuda is None or version_key(toolkit) <= version_key(known.last_cuda)
    )


def glibc_limit(toolkit: str) -> str | None:
    """Return the first glibc with whose headers this toolkit does not compile; None if none is
    known."""
    rows = [row for row in _DATA["glibc"] if version_key(row) <= version_key(toolkit)]
    limit: str | None = _DATA["glibc"][max(rows, key=version_key)]
    return limit


def serves(driver: str, toolkit: str, *, ptx: bool = False) -> bool:
    """Return whether this driver runs what the toolkit builds.

    Machine code runs on every driver from the first of the toolkit's major version on. PTX needs
    the toolkit's own driver or a newer one.
    """
    known = TOOLKITS[toolkit]
    needed = known.own_driver if ptx else known.driver
    return needed is not None and version_key(needed) <= version_key(driver)


def newest_for_driver(driver: str) -> str | None:
    """Return the newest toolkit whose code runs on this driver; None if the driver is too old."""
    fitting = [toolkit for toolkit in TOOLKITS if serves(driver, toolkit)]
    return fitting[-1] if fitting else None


def runs_on(code: str, sm: str) -> bool:
    """Return whether a GPU of this SM runs the code, spelled as in TORCH_CUDA_ARCH_LIST.

    `8.6` is machine code: it runs on SM 8.6 and later SMs of the same major version, unless one of
    the two is a Jetson's. `9.0a` runs only on SM 9.0. `10.0f` runs on its family: the same major
    version from SM 10.0 on. The driver compiles `8.0+PTX` for SM 8.0 and every later SM.
    """
    match = re.fullmatch(r"(\d{1,2}\.\d)([af]?)(\+PTX)?", code, re.ASCII)
    if match is None:
        raise ValueError(f"{code!r} is not an SM")
    built, node = sm_order(match[1]), sm_order(sm)
    if built == node or match[2] == "a":
        return built == node
    same_major = built[0] == node[0] and built < node
    if match[3]:
        return same_major if match[2] else built < node
    return same_major and not (is_jetson(match[1]) or is_jetson(sm))


def is_jetson(sm: str) -> bool:
    """Return whether this SM belongs to a Jetson module."""
    return sm in SMS and SMS[sm].jetson
