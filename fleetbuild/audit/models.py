"""What an audit says of a wheel."""

from __future__ import annotations

from typing import Literal

from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models._base import Frozen
from fleetbuild.text import version_key


class FeatureUse(Frozen):
    """A CPU feature that code uses, with one instruction that does."""

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
    glibc: str | None = None  # the highest GLIBC_ symbol version that it asks for
    glibcxx: str | None = None  # the same of libstdc++
    text_bytes: int = 0
    features: tuple[FeatureUse, ...] = ()  # beyond the architecture's baseline
    sms: tuple[str, ...] = ()  # machine code for GPUs: "8.6", "9.0a"
    ptx: tuple[str, ...] = ()  # code that the driver compiles for that SM or a newer one


class WheelAudit(Frozen):
    """What a wheel is, and what it needs; `problems` are sentences about what is wrong with it."""

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
        """All CPU features beyond the baseline, sorted."""
        return tuple(sorted({use.feature for elf in self.elfs for use in elf.features}))

    @property
    def sms(self) -> tuple[str, ...]:
        """All SMs that there is machine code for."""
        return tuple(sorted({sm for elf in self.elfs for sm in elf.sms}, key=sm_order))

    @property
    def ptx(self) -> tuple[str, ...]:
        """All SMs that there is PTX for."""
        return tuple(sorted({sm for elf in self.elfs for sm in elf.ptx}, key=sm_order))

    @property
    def libc_floor(self) -> str | None:
        """The oldest glibc that all of its files load with, None where they ask for none."""
        versions = [elf.glibc for elf in self.elfs if elf.glibc]
        return max(versions, key=version_key, default=None)
