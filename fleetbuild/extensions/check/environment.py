"""The packages installed in an environment or an unpacked image, by the files themselves.

In: a folder: a virtual environment, or the root of a file system. Out: each installed package with
its native files, and what these need. Nothing of the folder is run or imported.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleetbuild.audit.archive import Folder
from fleetbuild.audit.elf import MAGIC
from fleetbuild.errors import UsageError
from fleetbuild.extensions.check.needs import read_installed
from fleetbuild.extensions.check.results import FileResults, Results
from fleetbuild.files import read_input, sha256_of
from fleetbuild.models._base import Frozen

_PLACES = ("site-packages", "dist-packages")
_DIST_INFO = re.compile(r"([A-Za-z0-9][\w.]*)-([\w.+!]+)\.dist-info", re.ASCII)
_MAX_RECORD = 64 << 20


class Installed(Frozen):
    """A package in an environment, and its native files: their names and where they lie."""

    name: str
    version: str | None = None
    files: dict[str, Path] = {}


def installed_packages(folder: Path) -> tuple[Installed, ...]:
    """Return the packages installed in a folder, by RECORD files, and other native files.

    Links are not followed: an image may link anywhere.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", "Name a virtual environment, or a root.")
    places = sorted(_places(folder))
    if not places:
        raise UsageError(
            f"{folder} has no installed Python packages: no folder site-packages or dist-packages"
            " is in it.",
            "Name the folder of a virtual environment, or of an unpacked image.",
        )
    found: list[Installed] = []
    for place in places:
        native = _native_files(place)
        for info in sorted(place.glob("*.dist-info")):
            match = _DIST_INFO.fullmatch(info.name)
            if match and not info.is_symlink():
                files = {name: native.pop(name) for name in _recorded(info) if name in native}
                found.append(Installed(name=match[1], version=match[2], files=files))
        found += _unrecorded(native)
    return tuple(found)


def _unrecorded(native: Mapping[str, Path]) -> Iterator[Installed]:
    """Yield the files of no RECORD, such as in packages of distributions, by their folder."""
    tops: dict[str, dict[str, Path]] = {}
    for name, path in native.items():
        tops.setdefault(name.partition("/")[0], {})[name] = path
    for top, files in tops.items():
        yield Installed(name=f"{top} (in no RECORD)", files=files)


def read_package(package: Installed, results: Results) -> FileResults:
    """Return what the files of a package need; files that were read before are known by hash."""
    digest = hashlib.sha256()
    for name, path in package.files.items():
        digest.update(f"{name} {sha256_of(path)}\n".encode())
    known = results.of(digest.hexdigest(), "")
    if known.needs is None:
        known = known.model_copy(update={"needs": read_installed(package.files)})
        results.keep(known)
    return known


def _places(folder: Path) -> Iterator[Path]:
    for above, folders, _ in os.walk(folder):
        yield from (Path(above, name) for name in folders if name in _PLACES)
        skipped = (*_PLACES, "proc", "sys", "dev", "__pycache__")
        folders[:] = [name for name in folders if name not in skipped]


def _native_files(place: Path) -> dict[str, Path]:
    """Return the ELF files below a place, by their names there."""
    paths = (Path(above, name) for above, _, names in os.walk(place) for name in names)
    regular = {str(path.relative_to(place)): path for path in sorted(paths)
               if not path.is_symlink() and path.is_file()}  # fmt: skip
    folder = Folder(regular)
    return {name: path for name, path in regular.items() if folder.head(name) == MAGIC}


def _recorded(info: Path) -> Iterator[str]:
    try:
        text = read_input(info / "RECORD", _MAX_RECORD).decode("utf-8", "replace")
        yield from (row[0] for row in csv.reader(text.splitlines()) if row)
    except (OSError, csv.Error):
        return
