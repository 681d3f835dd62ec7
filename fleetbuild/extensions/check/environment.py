"""The packages installed in an environment or an unpacked image, by the files themselves.

In: a folder: a virtual environment, or the root of a file system. Out: each installed package with
its native files, and what these need. Nothing of the folder is run or imported.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fleetbuild.audit.archive import Folder
from fleetbuild.audit.elf import MAGIC
from fleetbuild.audit.limited_process import SECONDS, read_apart, too_much
from fleetbuild.errors import UsageError
from fleetbuild.extensions.check.needs import hash_installed, read_installed
from fleetbuild.extensions.check.results import FileResults, Results
from fleetbuild.files import read_input

_PLACES = ("site-packages", "dist-packages")
_DIST_INFO = re.compile(r"([A-Za-z0-9][\w.]*)-([\w.+!]+)\.dist-info", re.ASCII)
_MAX_RECORD = 64 << 20


class Installed(NamedTuple):
    """A package in an environment, and its native files: their names and where they lie."""

    name: str
    version: str | None
    files: dict[str, str]


def installed_packages(folder: Path) -> tuple[Installed, ...]:
    """Return the packages installed in a folder, by RECORD files, and other native files.

    Links are not followed: an image may link anywhere.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 (is_dir raises PermissionError)
        raise UsageError(f"{folder} is not a folder.", "Name a virtual environment, or a root.")
    found = read_apart(installed_here, folder, seconds=SECONDS)
    if found is None:
        raise UsageError(f"{folder} {too_much(SECONDS)}.", "Name a smaller folder in it.")
    if not found:
        raise UsageError(
            f"{folder} has no installed Python packages: nothing is in a folder site-packages or"
            " dist-packages in it.",
            "Name the folder of a virtual environment, or of an unpacked image.",
        )
    return tuple(Installed(*row) for row in found)


def installed_here(folder: Path) -> list[Installed]:
    """Find the packages in this process, the separate one."""
    found: list[Installed] = []
    for place in sorted(_places(folder)):
        native = _native_files(place)
        for info in sorted(place.glob("*.dist-info")):
            match = _DIST_INFO.fullmatch(info.name)
            if match and not info.is_symlink():
                files = {name: native.pop(name) for name in _recorded(info) if name in native}
                found.append(Installed(match[1], match[2], files))
        found += _unrecorded(native)
    return found


def owner_here(path: Path) -> tuple[str, str | None] | None:
    """Return the package that installed a file, and its version; by its folder if no RECORD says.

    It runs in the separate process. The file itself may be missing.
    """
    depth = max((at for at, part in enumerate(path.parts) if part in _PLACES), default=0)
    place, name = Path(*path.parts[: depth + 1]), "/".join(path.parts[depth + 1 :])
    if not depth or not name:
        return None
    for info in sorted(place.glob("*.dist-info")):
        match = _DIST_INFO.fullmatch(info.name)
        if match and not info.is_symlink() and name in _recorded(info):
            return match[1], match[2]
    return name.partition("/")[0].removesuffix(".libs"), None


def _unrecorded(native: Mapping[str, str]) -> Iterator[Installed]:
    """Yield the files of no RECORD, such as in packages of distributions, by their folder."""
    tops: dict[str, dict[str, str]] = {}
    for name, path in native.items():
        tops.setdefault(name.partition("/")[0], {})[name] = path
    for top, files in tops.items():
        yield Installed(f"{top} (in no RECORD)", None, files)


def read_package(package: Installed, results: Results) -> FileResults:
    """Return what the files of a package need; files that were read before are known by hash."""
    known = results.of(hash_installed(package.files) or "", "")  # without a hash, nothing is kept
    if known.needs is None:
        known = known.model_copy(update={"needs": read_installed(package.files)})
        results.keep(known)
    return known


def _places(folder: Path) -> Iterator[Path]:
    for above, folders, _ in os.walk(folder):
        yield from (Path(above, name) for name in folders if name in _PLACES)
        skipped = (*_PLACES, "proc", "sys", "dev", "__pycache__")
        folders[:] = [name for name in folders if name not in skipped]


def _native_files(place: Path) -> dict[str, str]:
    """Return the ELF files below a place, by their names there."""
    paths = (Path(above, name) for above, _, names in os.walk(place) for name in names)
    regular = {
        str(path.relative_to(place)).encode("utf-8", "backslashreplace").decode(): path
        for path in sorted(paths)
        if not path.is_symlink() and path.is_file()
    }
    folder = Folder(regular)
    return {name: str(path) for name, path in regular.items() if folder.head(name) == MAGIC}


def _recorded(info: Path) -> Iterator[str]:
    try:
        text = read_input(info / "RECORD", _MAX_RECORD).decode("utf-8", "replace")
        yield from (row[0] for row in csv.reader(text.splitlines()) if row)
    except (OSError, csv.Error):
        return
