"""Targets: the hardware and software that a wheel is built for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fleetbuild.models._base import Frozen
from fleetbuild.text import version_key


class TargetLibc(Frozen):
    """The libc family, and the oldest version on which the wheel must run."""

    family: Literal["glibc", "musl"]
    floor: str


class Floors(NamedTuple):
    """The oldest libraries that a stored wheel was checked for, or that a planned wheel needs."""

    libc: str
    libstdcxx: str | None = None  # None: unknown, or no node has it

    def satisfies(self, wanted: Floors) -> bool:
        """Return whether a wheel with these floors runs on the wanted floors."""
        if version_key(self.libc) > version_key(wanted.libc):
            return False
        if wanted.libstdcxx is None:
            return True
        return self.libstdcxx is not None and version_key(self.libstdcxx) <= version_key(
            wanted.libstdcxx
        )


class Target(Frozen):
    """The operating system, CPU, GPUs, Python ABI and libc that a wheel is built for."""

    os: Literal["linux"] = "linux"
    arch: str  # x86_64, aarch64
    isa: str  # the rung's name
    features: tuple[str, ...]  # the rung's features, sorted; no code may use others
    sms: tuple[str, ...] = ()  # "8.6"; empty for CPU wheels
    ptx: str | None = None  # the newest of them, if wheels contain its PTX, too (cuda_ptx)
    blas: Literal["mkl", "openblas"] | None = None  # build.blas, if the recipe offers it
    python: str  # cp311
    libc: TargetLibc

    @property
    def name(self) -> str:
        """The name of the group with this target: sm86-avx2-cp311, cpu-avx2-cp312-musl."""
        sms = ".".join("sm" + sm.replace(".", "") for sm in self.sms) or "cpu"
        musl = ("musl",) if self.libc.family == "musl" else ()
        return "-".join((sms, self.isa, self.python, *musl))

    def with_floor(self, floor: str) -> Target:
        """Return the same target for machines with this C library or a newer one."""
        if floor == self.libc.floor:
            return self
        return self.model_copy(update={"libc": self.libc.model_copy(update={"floor": floor})})
