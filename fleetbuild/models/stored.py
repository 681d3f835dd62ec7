"""A wheel in the store, and the record beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import LockedFile
from fleetbuild.models.target import Floors, TargetLibc


class SignedRelease(NamedTuple):
    """A statement about a release, and its signature."""

    statement: dict[str, Any]
    signature: str


class Signer(Protocol):
    """Signs what a run makes, in the operator's name."""

    def __call__(self, about: Mapping[str, Any]) -> SignedRelease:
        """Return the statement about a release, with what belongs into it, and its signature."""
        ...

    def text(self, text: str, purpose: str) -> str:
        """Return the signature of a text; it counts for this purpose alone."""
        ...


class WheelRecord(Frozen):
    """What the store records about a wheel: the file beside it."""

    artifact_key: str
    package: str
    version: str
    wheel_version: str
    file: str
    sha256: str
    delivered_sha256: str | None = None  # before the bill of materials was added
    size: int
    group: str  # the name of its target
    libc: TargetLibc
    libstdcxx: str | None = None  # the oldest GLIBCXX that the audit checked
    recipe: str
    environment: dict[str, str]
    compiler: str
    built_on: str
    built_at: str
    seconds: float
    source_sha256: str | None
    build_lock: tuple[LockedFile, ...]
    needs: tuple[str, ...] = ()  # linked libraries that it does not contain
    imports: tuple[str, ...] = ()  # its top-level modules


@dataclass(frozen=True)
class BuildContext:
    """What the run knows about a build, beside the planned wheel."""

    plan_digest: str = ""
    # Of the builder: tool -> versions.
    toolchain: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cached: bool = False  # an earlier run built it; nothing here says when
    sign: Signer | None = None


NO_CONTEXT = BuildContext()


class StoredWheel(Frozen):
    """A wheel in the store, with its provenance."""

    path: Path
    provenance: WheelRecord
    revoked: str = ""  # why it must not be used, as a sentence

    @property
    def sha256(self) -> str:
        """Return its hash."""
        return self.provenance.sha256

    @property
    def floors(self) -> Floors:
        """Return the oldest libraries that it runs with."""
        return Floors(self.provenance.libc.floor, self.provenance.libstdcxx)
