"""A release: one installed environment on a node. Its manifest lies beside it on the node."""

from __future__ import annotations

from fleetbuild.models._base import Frozen


class ManifestWheel(Frozen):
    """A wheel that fleetbuild built, as it was installed."""

    package: str
    version: str  # with the local label: 0.8.0+cpu.avx2
    artifact_key: str
    sha256: str


class Manifest(Frozen):
    """What `manifest.json` in a release says; written last, so its presence means complete."""

    format_version: int = 1
    release: str  # the release's name, such as "default"
    id: str
    group: str
    python: str  # the interpreter that it was made with
    wheels: tuple[ManifestWheel, ...]
    dependencies: tuple[str, ...] = ()  # name==version
    verified: bool = False


def release_root(install_path: str, release_name: str) -> str:
    """Where a release's versions and its `current` link live on a node."""
    return install_path if release_name == "default" else f"{install_path}/{release_name}"
