"""Read the metadata of a source without running any of its code.

In: an sdist, archive or tree. Out: `SourceMetadata`.
"""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from email import message_from_string
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from fleetbuild.errors import ConfigError
from fleetbuild.models._base import Frozen

_DEFAULT_BACKEND = "setuptools.build_meta:__legacy__"  # PEP 517's, for a source that names none
_DEFAULT_REQUIRES = ("setuptools>=40.8.0", "wheel")
MAX_TEXT = 1 << 20
MAX_MEMBERS = 500_000
MAX_BYTES = 16 << 30


class SourceMetadata(Frozen):
    """Name, version and build backend of a source."""

    name: str | None = None
    version: str | None = None
    backend: str = _DEFAULT_BACKEND
    build_requirements: tuple[str, ...] = _DEFAULT_REQUIRES


def read_source(path: Path) -> SourceMetadata:
    """Return the static metadata of an sdist, archive or tree."""
    if path.is_dir():
        texts = {name: _text_of(path / name) for name in ("PKG-INFO", "pyproject.toml")}
    else:
        texts = _texts_of_archive(path)
    return read_texts(texts, str(path))


def read_texts(texts: Mapping[str, str], source: str) -> SourceMetadata:
    """Return the static metadata in the texts of PKG-INFO and pyproject.toml."""
    pyproject = parse_toml(texts.get("pyproject.toml") or "", source)
    system = pyproject.get("build-system", {})
    name, version = _identity(texts.get("PKG-INFO") or "", pyproject.get("project", {}))
    return SourceMetadata(
        name=name,
        version=version,
        backend=str(system.get("build-backend", _DEFAULT_BACKEND)),
        build_requirements=tuple(map(str, system.get("requires", _DEFAULT_REQUIRES))),
    )


def _identity(pkg_info: str, project: dict[str, Any]) -> tuple[str | None, str | None]:
    headers = message_from_string(pkg_info)
    name, version = project.get("name") or headers["Name"], project.get("version")
    version = version or headers["Version"]
    try:
        return name and str(name), str(Version(str(version))) if version else None
    except InvalidVersion:
        return name and str(name), None


def _texts_of_archive(path: Path) -> dict[str, str]:
    """Return the topmost metadata files, at most one folder deep as in an sdist."""
    try:
        if zipfile.is_zipfile(path):
            return _texts_of_zip(path)
        return _texts_of_tar(path)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, ValueError) as problem:
        raise ConfigError(
            f"{path} cannot be read as a source archive: {problem}.",
            "Name an sdist (.tar.gz), a .zip, or a source tree.",
        ) from None


def _texts_of_tar(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    size = 0
    with tarfile.open(path, "r:*") as tar:
        for count, member in enumerate(tar):
            size += member.size
            if count > MAX_MEMBERS or size > MAX_BYTES:
                raise ValueError("it contains too many files for a source")
            if (name := _wanted(member.name)) and member.isfile() and member.size <= MAX_TEXT:
                file = tar.extractfile(member)
                found[name] = file.read().decode("utf-8", "replace") if file else ""
            if len(found) == 2:
                break
    return found


def _texts_of_zip(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: archive.read(member).decode("utf-8", "replace")
            for member in archive.infolist()
            if (name := _wanted(member.filename)) and member.file_size <= MAX_TEXT
        }


def _wanted(member: str) -> str | None:
    parts = member.removeprefix("./").split("/")
    return parts[-1] if len(parts) <= 2 and parts[-1] in ("PKG-INFO", "pyproject.toml") else None


def _text_of(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > MAX_TEXT:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the content of a pyproject.toml; raise ConfigError if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(
            f"The pyproject.toml of {source} is not valid TOML: {problem}.", "Correct it."
        ) from None
