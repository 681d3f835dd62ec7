"""Questions to a resolver and its answers, as values: planning asks, the store looks them up."""

from __future__ import annotations

from typing import Any

from fleetbuild.models import LockedFile, TargetLibc
from fleetbuild.models._base import Frozen


class StandIn(Frozen):
    """A package that we build, of which the recipe says what it needs at run time: there is no
    need to ask its source."""

    name: str
    version: str
    requires: tuple[str, ...]


class LockRequest(Frozen):
    """Resolve these requirements for a machine of this kind."""

    requirements: tuple[str, ...]
    sources: tuple[str, ...] = ()  # packages that are taken as source, since we build them
    stand_ins: tuple[StandIn, ...] = ()  # required as well, and no part of the answer
    constraints: tuple[str, ...] = ()  # of what is chosen anyway
    python_version: str  # 3.11.2
    python: str  # cp311
    arch: str
    libc: TargetLibc


class Resolution(Frozen):
    """The answer: wheels for all but `sources`; or the problem, as a sentence."""

    wheels: tuple[LockedFile, ...] = ()
    sources: tuple[LockedFile, ...] = ()
    problem: str | None = None
    fix: str | None = None
    offline: bool = False  # nobody could be asked: the lock is missing, not impossible


class Source(Frozen):
    """The source of a package to be built, by content."""

    package: str
    version: str
    file: LockedFile | None = None  # None: pinned, and no index could be asked
    path: str | None = None  # where the user keeps it, if it is local
    build_requirements: tuple[str, ...] = ()  # its own and its backend's
    unasked: str | None = None  # why it was not asked for them, a sentence

    @property
    def sha256(self) -> str | None:
        """The hash of its content, or the commit that it is."""
        return self.file.identity if self.file else None


class Locks(Frozen):
    """All that resolving brought for one plan."""

    resolutions: dict[Any, Resolution] = {}  # LockRequest -> Resolution
    sources: tuple[Source, ...] = ()
    unfetched: Resolution | None = None  # a source that is known and could not be fetched
    closures: dict[str, tuple[LockedFile, ...]] = {}  # group -> what is installed with its wheels

    def __getitem__(self, request: LockRequest) -> Resolution:
        return self.resolutions.get(request, MISSING)

    def source(self, package: str) -> Source | None:
        """The source of this package, where it is known."""
        return next((source for source in self.sources if source.package == package), None)


MISSING = Resolution(problem="No index was asked.", offline=True)
