"""Targets: the hardware and software that a wheel is built for."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen


class TargetLibc(Frozen):
    """The libc family, and the oldest version on which the wheel must run."""

    family: Literal["glibc", "musl"]
    floor: str


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
