"""Read what the native code of a wheel needs from its CPU and GPU, and when.

In: a wheel. Out: `WheelNeeds`, one entry for each ELF file. Only the bytes of a file count, never
the name or the version of the package: builds of one version differ.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetbuild.audit.apart import SECONDS, read_apart, seconds_for, too_much
from fleetbuild.audit.archive import BROKEN, Archive, Folder
from fleetbuild.audit.models import WheelNeeds
from fleetbuild.audit.wheel import read_elfs


def read_needs(path: Path) -> WheelNeeds:
    """Return what each ELF file of a wheel needs; `problems` say which files are not readable."""
    document = read_apart(needs_here, path)
    if document is None:
        seconds = seconds_for(path.stat().st_size, SECONDS)
        return WheelNeeds(file=path.name, problems=(f"it {too_much(seconds)}",))
    return WheelNeeds.model_validate(document)


def read_installed(files: Mapping[str, Path]) -> WheelNeeds:
    """Return what each of these installed files needs, by its name."""
    document = read_apart(files_here, *files.values(), names=tuple(files))
    if document is None:
        seconds = seconds_for(sum(path.stat().st_size for path in files.values()), SECONDS)
        return WheelNeeds(file="", problems=(f"it {too_much(seconds)}",))
    return WheelNeeds.model_validate(document)


def files_here(*paths: Path, names: Sequence[str]) -> WheelNeeds:
    """Read files in this process, the separate one."""
    problems: list[str] = []
    found = tuple(read_elfs(Folder(dict(zip(names, paths, strict=True))), problems))
    return WheelNeeds(file="", files=found, problems=tuple(problems))


def needs_here(path: Path) -> WheelNeeds:
    """Read a wheel in this process, the separate one."""
    try:
        with zipfile.ZipFile(path) as file:
            archive = Archive(file)
            problems = list(archive.problems)
            files = () if problems else tuple(read_elfs(archive, problems))
    except BROKEN as error:
        return WheelNeeds(file=path.name, problems=(f"it is not a zip archive: {error}",))
    return WheelNeeds(file=path.name, files=files, problems=tuple(problems))
