"""Read what the native code of a wheel needs from its CPU and GPU, and when.

In: a wheel. Out: `WheelNeeds`, one entry for each ELF file. Only the bytes of a file count, never
the name or the version of the package: builds of one version differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fleetbuild.audit.archive import BROKEN, Archive, Folder, opened_here
from fleetbuild.audit.elf import MAGIC
from fleetbuild.audit.entry_points import info_folder
from fleetbuild.audit.limited_process import SECONDS, read_apart, seconds_for, too_much
from fleetbuild.audit.models import ElfAudit
from fleetbuild.audit.pieces import find
from fleetbuild.audit.wheel import ENOUGH, read_elfs
from fleetbuild.files import sha256_of
from fleetbuild.models._base import Frozen
from fleetbuild.text import first_few

_LONG_ENOUGH = 6  # characters of a library's name that do not occur by chance


class WheelNeeds(Frozen):
    """What the native code of a wheel needs; `problems` name files that could not be read."""

    file: str
    files: tuple[ElfAudit, ...] = ()
    problems: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # the names of the packages that it requires here, always


def read_needs(path: Path) -> WheelNeeds:
    """Return what each ELF file of a wheel needs; `problems` say which files are not readable."""
    document = read_apart(needs_here, path)
    if document is None:
        seconds = seconds_for(path.stat().st_size, SECONDS)
        return WheelNeeds(file=path.name, problems=(f"it {too_much(seconds)}",))
    return WheelNeeds.model_validate(document)


def hash_installed(files: Mapping[str, str]) -> str | None:
    """Return the hash of these installed files and their names; None if that takes too long."""
    found: str | None = read_apart(hash_here, *map(Path, files.values()), **_given(files))
    return found


def read_installed(files: Mapping[str, str]) -> WheelNeeds:
    """Return what each of these installed files needs, by its name."""
    given = _given(files)
    document = read_apart(files_here, *map(Path, files.values()), **given)
    if document is None:
        return WheelNeeds(file="", problems=(f"it {too_much(given['seconds'])}",))
    return WheelNeeds.model_validate(document)


def _given(files: Mapping[str, str]) -> dict[str, Any]:
    """Return names, and time by what the files take of the disk: sparse ones may be endless."""
    packed = sum(512 * os.lstat(path).st_blocks for path in files.values())
    return {"names": tuple(files), "seconds": seconds_for(packed, SECONDS)}


def hash_here(*paths: Path, names: Sequence[str]) -> str:
    """Hash files in this process, the separate one."""
    rows = zip(names, map(sha256_of, paths), strict=True)
    return sha256("".join(f"{name} {digest}\n" for name, digest in rows).encode()).hexdigest()


def files_here(*paths: Path, names: Sequence[str]) -> WheelNeeds:
    """Read files in this process, the separate one."""
    problems: list[str] = []
    found = tuple(read_elfs(Folder(dict(zip(names, paths, strict=True))), problems))
    return WheelNeeds(file="", files=found, problems=tuple(problems))


def needs_here(path: Path) -> WheelNeeds:
    """Read a wheel in this process, the separate one."""
    try:
        with opened_here(path) as archive:
            problems = list(archive.problems)
            files = () if problems else tuple(read_elfs(archive, problems))
            files = tuple(_with_use(archive, files))
            requires = () if problems else _required_packages(archive)
    except BROKEN as error:
        return WheelNeeds(file=path.name, problems=(f"it is not a zip archive: {error}",))
    return WheelNeeds(
        file=path.name, files=files, problems=first_few(problems, ENOUGH), requires=requires
    )


def _with_use(archive: Archive, files: Sequence[ElfAudit]) -> Iterator[ElfAudit]:
    """Yield the files; libraries that no other file of the wheel links or names are marked so."""
    linked = {name for elf in files for name in elf.needed}
    for elf in files:
        file = elf.path.rpartition("/")[2]
        name = file.removeprefix("lib").partition(".so")[0].partition("-")[0]
        library = file.startswith("lib") and file not in linked and len(name) >= _LONG_ENOUGH
        if library and (elf.load or elf.default) and not _is_named(archive, name, elf.path):
            elf = elf.model_copy(update={"named": False})  # noqa: PLW2901
        yield elf


def _is_named(archive: Archive, name: str, path: str) -> bool:
    """Return whether Python code or another ELF file contains this name."""
    for other in archive.names:
        if other.endswith(".py") and name in (archive.text(other) or ""):
            return True
        if other != path and archive.head(other) == MAGIC:
            with archive.mapped(other) as data:
                if find(data, name.encode(), 0, len(data)) >= 0:
                    return True
    return False


def _required_packages(archive: Archive) -> tuple[str, ...]:
    """Return the names of what a wheel requires on this machine without any extra."""
    folder = info_folder(archive)
    text = archive.text(f"{folder}/METADATA") if folder else None
    found = set()
    for line in HeaderParser().parsestr(text or "").get_all("Requires-Dist") or ():
        with suppress(ValueError, UndefinedEnvironmentName):  # also a number of 5,000 digits
            requirement = Requirement(str(line))
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                found.add(canonicalize_name(requirement.name))
    return tuple(sorted(found))
