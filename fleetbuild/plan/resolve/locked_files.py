"""The files that a lock names: the wheel of a package for a machine, by its hash.

In: a package of a pylock.toml, which uv prints too, or of a uv.lock. Out: a `LockedFile`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from fleetbuild.audit.wheel_tags import best_wheel
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile, TargetLibc

_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII)


def locked_wheel(
    package: dict[str, Any], python: str, arch: str, libc: TargetLibc, folder: Path
) -> LockedFile | None:
    """Return the best wheel of a locked package for a machine; None without one with a hash."""
    files = {_file_name(wheel): wheel for wheel in package.get("wheels", ())}
    best = best_wheel(files, python, arch, libc)
    return locked_file(package, files[best], folder) if best else None


def locked_file(package: dict[str, Any], file: dict[str, Any], folder: Path) -> LockedFile | None:
    """Return a file of a locked package; None if its hash is unknown.

    Paths begin in `folder`, where the lock is.
    """
    url = str(file.get("url") or (folder / str(file.get("path"))).resolve().as_uri())
    path = Path(unquote(urlsplit(url).path)) if url.startswith("file://") else None
    hashes = file.get("hashes")
    sha256 = hashes.get("sha256") if isinstance(hashes, dict) else file.get("hash")
    match = _SHA256.fullmatch(str(sha256))
    on_disk = path is not None and path.is_file()
    if match is None and not on_disk:
        return None
    size = path.stat().st_size if path and on_disk else file.get("size")
    return LockedFile(
        name=canonicalize_name(str(package["name"])),
        version=str(package.get("version", "")),
        file=_file_name(file),
        sha256=match[1] if match else sha256_of(Path(path or "")),
        url=url.split("#", maxsplit=1)[0],
        size=size if isinstance(size, int) and size >= 0 else None,
    )


def _file_name(file: dict[str, Any]) -> str:
    address = str(file.get("url") or file.get("path") or "")
    named = file.get("name") or file.get("filename")
    return str(named or unquote(urlsplit(address).path).rsplit("/", 1)[-1])
