"""Groups of Windows nodes. They are planned only: their wheels are built and installed by hand."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen

PLANNED_ONLY = "fleetbuild does not build or install on Windows yet: this node is planned only."


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
    problem: str | None = None  # why there is no build script for it
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
