"""Targets: the hardware and software that a wheel is built for.

The groups of Windows nodes are here, too: they are planned only, and built by hand.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from fleetbuild.models._base import Frozen
from fleetbuild.text import version_key

PLANNED_ONLY = "fleetbuild does not build or install on Windows yet: this node is planned only."


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


class WindowsTarget(Frozen):
    """The CPU, GPUs and Python ABI that a wheel for Windows is built for."""

    os: Literal["windows"] = "windows"
    arch: str  # x86_64
    isa: str  # the rung's name
    features: tuple[str, ...]  # the rung's features, sorted
    sms: tuple[str, ...] = ()
    ptx: str | None = None
    blas: Literal["mkl", "openblas"] | None = None
    python: str  # cp311

    @property
    def name(self) -> str:
        """The name of the group with this target: sm35-avx-cp310-win."""
        sms = ".".join("sm" + sm.replace(".", "") for sm in self.sms) or "cpu"
        return "-".join((sms, self.isa, self.python, "win"))


class WindowsSource(Frozen):
    """Where the source of a wheel is: a git tag, else the sdist of the index, or a local path."""

    git: str | None = None
    ref: str | None = None
    submodules: bool = True
    requirement: str | None = None  # torch==2.0.1


class WindowsWheel(Frozen):
    """How one wheel is built on Windows with Microsoft's compiler (MSVC)."""

    package: str
    version: str
    wheel_version: str
    recipe: str
    target: WindowsTarget
    problem: str | None = None  # why it cannot be built by a script
    source: WindowsSource = WindowsSource()
    cuda: str | None = None
    cuda_why: str | None = None
    evidence: str | None = None
    environment: dict[str, str] = {}
    config_settings: dict[str, str] = {}  # for the build backend
    build_requirements: tuple[str, ...] = ()
    files: dict[str, str] = {}  # files to put beside the source: name -> text
    patches: dict[str, str] = {}  # name -> text, in the order in which they are applied
    bundled: dict[str, tuple[str, ...]] = {}  # folder of the source -> libraries to copy there
    checks: tuple[str, ...] = ()  # Python snippets that must run on every node
    import_names: tuple[str, ...] = ()
    disk_gb: float = 1
    job_memory_gb: float = 1  # for one compiler process


class WindowsGroup(Frozen):
    """Windows nodes with the same target, and how their wheels are built."""

    name: str
    nodes: tuple[str, ...]
    target: WindowsTarget
    python: str  # version of the interpreter to build with: 3.10
    toolset_below: str | None = None  # the first MSVC toolset that the CUDA toolkit refuses
    wheels: tuple[WindowsWheel, ...]
    to_supply: tuple[str, ...] = ()  # sentences: what the nodes lack for a build
