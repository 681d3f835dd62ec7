"""The results of an audit of a wheel."""

from __future__ import annotations

from typing import Literal

from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models._base import Frozen
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import runs_on

# When code runs: as soon as the file is loaded or imported; by default; behind a check of the CPU.
When = Literal["load", "default", "guarded"]


class FeatureUse(Frozen):
    """A CPU feature that code uses, with an example instruction."""

    feature: str  # as in /proc/cpuinfo
    when: When = "default"
    instruction: str
    address: int
    symbol: str | None = None

    def __str__(self) -> str:
        where = f" in `{self.symbol}`" if self.symbol else ""
        return f"{self.feature} ({self.instruction} at {self.address:#x}{where})"


class Kernels(Frozen):
    """GPU kernels of one file that are compiled for the same SMs."""

    codes: tuple[str, ...]  # "8.6", "9.0a"; "9.0+PTX" for PTX alone
    names: tuple[str, ...]

    def run_on(self, sm: str) -> bool:
        """Return whether one of the codes runs on this SM."""
        return any(code_runs_on(code, sm) for code in self.codes)


class ElfAudit(Frozen):
    """One ELF file of a wheel: what it needs, and when."""

    path: str
    arch: str  # x86_64, aarch64, or the ELF machine's name or number
    needed: tuple[str, ...] = ()
    libc: Literal["glibc", "musl"] | None = None
    glibc: str | None = None  # the highest required GLIBC_ symbol version
    glibcxx: str | None = None  # the same of libstdc++
    # Beyond the architecture's baseline; the first use of each feature for each `when`.
    features: tuple[FeatureUse, ...] = ()
    checks_cpu: bool = False  # it asks which features the CPU has: code may be behind a check
    search_paths: tuple[str, ...] = ()  # RPATH and RUNPATH
    sms: tuple[str, ...] = ()  # machine code for GPUs: "8.6", "9.0a"
    ptx: tuple[str, ...] = ()  # code that the driver compiles for that SM or a newer one
    kernels: tuple[Kernels, ...] = ()
    unread: tuple[str, ...] = ()  # what it contains that the audit cannot read
    named: bool = True  # whether another file of the wheel may load it
    unknown: tuple[str, ...] = ()  # an instruction of unguarded code that cannot be decoded

    @property
    def load(self) -> frozenset[str]:
        """Return the features that code uses as soon as the file is loaded."""
        return self._used("load")

    @property
    def default(self) -> frozenset[str]:
        """Return the features of code that runs later and is behind no known check."""
        return self._used("default")

    @property
    def guarded(self) -> frozenset[str]:
        """Return the features of code that runs only after a check of the CPU."""
        return self._used("guarded")

    @property
    def where(self) -> dict[str, str]:
        """Return for each feature the function, or the address, that needs it the earliest."""
        order = {"load": 0, "default": 1, "guarded": 2}
        found: dict[str, str] = {}
        for use in sorted(self.features, key=lambda use: order[use.when]):
            found.setdefault(use.feature, use.symbol or f"{use.address:#x}")
        return found

    def kernels_missing(self, sm: str) -> tuple[str, ...]:
        """Return the kernels that have no code for an SM, neither machine code nor PTX."""
        missing = (kernel.names for kernel in self.kernels if not kernel.run_on(sm))
        return tuple(sorted({name for names in missing for name in names}))

    def _used(self, when: When) -> frozenset[str]:
        return frozenset(use.feature for use in self.features if use.when == when)


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


def code_runs_on(code: str, sm: str) -> bool:
    """Return whether GPU code, "8.6" or "8.6+PTX", runs on an SM."""
    try:
        return runs_on(code, sm)
    except ValueError:  # the file names an unknown SM
        return False
