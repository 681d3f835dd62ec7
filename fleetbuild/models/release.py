"""Releases: an installed environment on a node, described by its manifest there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from fleetbuild.models._base import Frozen

# A manifest comes from a node and is untrusted, so each value has an exact form: keys and ids
# become names of folders, names and versions become labels and are printed.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,127}"
ENVIRONMENT_BYTES = 40_000_000  # of an empty environment, with uv beside it or pip in it
_FOLDER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Dependency = Annotated[str, Field(pattern=f"^{_NAME}=={_VERSION}$")]


class ManifestWheel(Frozen):
    """An installed wheel that fleetbuild built."""

    package: str = Field(pattern=f"^{_NAME}$")
    version: str = Field(pattern=f"^{_VERSION}$")  # with the local label: 0.8.0+cpu.avx2
    artifact_key: str = Field(pattern=r"^[0-9a-f]{32}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(Frozen):
    """The content of a release's `manifest.json`. It is written last, so it means complete."""

    format_version: int = Field(default=1, ge=1, le=1000)
    release: str = Field(pattern=_FOLDER)  # the release's name, such as "default"
    id: str = Field(pattern=_FOLDER)
    group: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,252}$")
    python: str = Field(max_length=1024)  # path of its interpreter
    wheels: tuple[ManifestWheel, ...] = Field(max_length=1000)
    dependencies: tuple[Dependency, ...] = Field(default=(), max_length=5000)
    verified: bool = False
    # The hash of the record of its files, beside the manifest, which the node writes.
    files_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")

    def names(self, package: str, version: str, sha256: str) -> bool:
        """Return whether it names this wheel: a built one by hash, another by version."""
        built = sha256 in (wheel.sha256 for wheel in self.wheels)
        return built or f"{package}=={version}" in self.dependencies


class ReleaseFile(NamedTuple):
    """A wheel of a release."""

    name: str  # of the package
    path: Path
    sha256: str
    needs: tuple[str, ...] = ()  # libraries that no wheel of the release brings
    imports: tuple[str, ...] = ()  # the modules of a planned wheel, by its recipe or its own record

    @property
    def version(self) -> str:
        """Return its version, from its file name."""
        return self.path.name.split("-")[1]


def requirements(files: Iterable[ReleaseFile]) -> str:
    """Return requirements.txt: every file of a release, by version and hash."""
    return "".join(
        f"{file.name}=={file.version} --hash=sha256:{file.sha256}\n" for file in sorted(files)
    )


def release_root(install_path: str, release_name: str) -> str:
    """Return the folder of a release's versions and its `current` link on a node."""
    return install_path if release_name == "default" else f"{install_path}/{release_name}"
