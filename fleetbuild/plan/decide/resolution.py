"""Requests to a resolver and its results, as values.

Planning states a `LockRequest`; the store resolves it with an index and returns a `Resolution`.
"""

from __future__ import annotations

from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator

from fleetbuild.models import LockedFile, TargetLibc
from fleetbuild.models._base import Frozen
from fleetbuild.models.problem import Problem


def _valid_python(text: str | None) -> str | None:
    """Return a range of versions; None for another text, which installers ignore."""
    try:
        return text and str(SpecifierSet(text))
    except InvalidSpecifier:
        return None


class StaticMetadata(Frozen):
    """A package that fleetbuild builds, with its run-time requirements.

    The resolver takes these requirements instead of the source, which it would build for metadata.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    # It becomes a line of metadata for uv, and a line break in it would begin another.
    requires_python: Annotated[str | None, AfterValidator(_valid_python)] = None
    extras: tuple[str, ...] = ()  # that are asked for


class LockRequest(Frozen):
    """Resolve these requirements for a machine of this kind."""

    requirements: tuple[str, ...]
    sources: tuple[str, ...] = ()  # packages that fleetbuild builds: resolve to their source
    static_metadata: tuple[StaticMetadata, ...] = ()  # required as well, but left out of the result
    constraints: tuple[str, ...] = ()  # version constraints on other packages
    python_version: str  # 3.11.2
    python: str  # cp311
    arch: str
    libc: TargetLibc
    # PyTorch's own index, if index: names pytorch: "cpu", "cu130". None: not asked for, or PyTorch
    # has none for this CUDA.
    pytorch: str | None = None


class Resolution(Frozen):
    """The result: wheels for all packages but `sources`, or the problem as a sentence."""

    wheels: tuple[LockedFile, ...] = ()
    sources: tuple[LockedFile, ...] = ()
    problem: str | None = None
    fix: str | None = None
    offline: bool = False  # an index or source was not reached: nobody knows whether a lock exists

    def blocking(self, group: str, what: str = "") -> Problem:
        """Return the problem of a group that is blocked for this, in the lock of `what`."""
        return Problem(f"{group}: {what}{self.problem}", self.fix or "")


class Source(Frozen):
    """The source of a package to be built, by content."""

    package: str
    version: str
    file: LockedFile | None = None  # None: pinned, but no index could be reached
    path: str | None = None  # the user's own path of a local source
    build_requirements: tuple[str, ...] = ()  # its own and its backend's
    metadata_problem: str | None = None  # why the requirements could not be read
    # For a package without a recipe of its own: the signs of GPU code, and requirements that
    # suggest it.
    gpu_code: tuple[str, ...] = ()
    gpu_requirements: tuple[str, ...] = ()
    crates_missing: bool = False  # a build by cargo would download crates

    @property
    def sha256(self) -> str | None:
        """The hash of its content, or its commit."""
        return self.file.identity if self.file else None


WheelId = tuple[str, str]  # package, and the first group that the wheel serves


class Locks(Frozen):
    """Everything that was resolved for one plan."""

    sources: tuple[Source, ...] = ()
    dependencies: dict[str, Resolution] = {}  # by group: what it installs beside its wheels
    builds: dict[WheelId, Resolution] = {}  # the build requirements of each wheel
    toolkits: dict[WheelId, Resolution] = {}  # CUDA toolkits that come as wheels

    def source(self, package: str) -> Source | None:
        """Return the source of this package, if it is known."""
        return next((source for source in self.sources if source.package == package), None)


MISSING = Resolution(problem="No package index was queried.", offline=True)
