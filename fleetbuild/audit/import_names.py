"""Find the modules to import from a wheel if its recipe does not name them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fleetbuild.audit.downloads import contents_of


def import_names(wheel: Path) -> tuple[str, ...]:
    """Return the top-level modules of a wheel; private ones only if all are private."""
    names = top_level(contents_of(wheel).names)
    public = tuple(name for name in names if not name.startswith("_"))
    return public or names


def top_level(files: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level packages and modules among the files of a wheel."""
    found = {name for file in files if (name := _name(PurePosixPath(file)))}
    return tuple(sorted(found))


def _name(file: PurePosixPath) -> str | None:
    first = file.parts[0] if file.parts else ""
    if file.suffix not in (".py", ".so"):
        return None
    # hnswlib.cpython-311-x86_64-linux-gnu.so, six.py, numpy/__init__.py
    name = first.split(".")[0] if len(file.parts) == 1 else first
    return name if name.isidentifier() else None
