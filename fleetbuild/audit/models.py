"""The results of an audit of a wheel."""

from __future__ import annotations

from typing import Literal

from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models._base import Frozen
from fleetbuild.text import version_key


class FeatureUse(Frozen):
    """A CPU feature that code uses, with an example instruction."""

    feature: str  # as in /proc/cpuinfo
    instruction: str
    address: int
    symbol: str | None = None

    def __str__(self) -> str:
        where = f" in `{self.symbol}`" if self.symbol else ""
        return f"{self.feature} ({self.instruction} at {self.address:#x}{where})"


class ElfAudit(Frozen):
    """One ELF file of a wheel."""

    path: str
    arch: str  # x86_64, aarch64, or the ELF machine's name or number
    needed: tuple[str, ...] = ()
    libc: Literal["glibc", "musl"] | None = None
    glibc: str | None = None  # the highest required GLIBC_ symbol version
    glibcxx: str | None = None  # the same of libstdc++
    text_bytes: int = 0
    features: tuple[FeatureUse, ...] = ()  # beyond the architecture's baseline
    sms: tuple[str, ...] = ()  # machine code for GPUs: "8.6", "9.0a"
    ptx: tuple[str, ...] = ()  # code that the driver compiles for that SM or a newer one


class WheelAudit(Frozen):
    """What a wheel is and needs; `problems` are sentences about its defects."""

    file: str
    sha256: str
    name: str | None = None  # from METADATA
    version: str | None = None
    file_name: str | None = None  # the name that the file's name says
    file_version: str | None = None
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # of METADATA
    elfs: tuple[ElfAudit, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Return all CPU features beyond the baseline, sorted."""
        return tuple(sorted({use.feature for elf in self.elfs for use in elf.features}))

    @property
    def sms(self) -> tuple[str, ...]:
        """Return all SMs with machine code."""
        return tuple(sorted({sm for elf in self.elfs for sm in elf.sms}, key=sm_order))

    @property
    def ptx(self) -> tuple[str, ...]:
        """Return all SMs with PTX."""
        return tuple(sorted({sm for elf in self.elfs for sm in elf.ptx}, key=sm_order))

    @property
    def libc_floor(self) -> str | None:
        """Return the oldest glibc that all of its files load with; None if they need no glibc."""
        versions = [elf.glibc for elf in self.elfs if elf.glibc]
        return max(versions, key=version_key, default=None)
