"""Find the modules to import from a wheel if its recipe does not name them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fleetbuild.audit.archive import BROKEN, Archive
from fleetbuild.audit.limited_process import read_apart


def import_names(wheel: Path) -> tuple[str, ...]:
    """Return the top-level modules of a wheel; private ones only if all are private."""
    names = top_level(members(wheel))
    public = tuple(name for name in names if not name.startswith("_"))
    return public or names


def members(wheel: Path) -> tuple[str, ...]:
    """Return the names of a wheel's files; empty if its audit refuses the archive."""
    return tuple(read_apart(members_here, wheel) or ())


def members_here(wheel: Path) -> tuple[str, ...]:
    """Read the names in this process, the separate one."""
    try:
        with zipfile.ZipFile(wheel) as file:
            archive = Archive(file)
            return () if archive.problems else archive.names
    except BROKEN:
        return ()


def top_level(files: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level packages and modules among the files of a wheel."""
    found = {name for file in files if (name := _name(PurePosixPath(file)))}
    return tuple(sorted(found))


def _name(file: PurePosixPath) -> str | None:
    first = file.parts[0] if file.parts else ""
    if file.suffix not in (".py", ".so") or first.endswith((".dist-info", ".data")):
        return None
    # hnswlib.cpython-311-x86_64-linux-gnu.so, six.py, numpy/__init__.py
    name = first.split(".")[0] if len(file.parts) == 1 else first
    return name if name.isidentifier() else None
