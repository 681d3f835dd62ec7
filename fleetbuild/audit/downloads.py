"""Check wheels that others built.

In: files that the lock names. Out: a sentence for each problem. Their code is not read: a published
wheel chooses it at run time, and its hash is in the lock.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from fleetbuild.audit.archive import BROKEN, Archive
from fleetbuild.audit.content import announced_files, content_problems, tag_problems
from fleetbuild.audit.entry_points import Unclear
from fleetbuild.audit.metadata import same

RULES = 3  # raised with every change of content.py, so that stored results are checked again
_ENOUGH = 5


def audit_download(
    path: Path, name: str, version: str, allowed: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return what a downloaded wheel holds and may not."""
    try:
        found_name, found_version, _, tags = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as file:
            archive = Archive(file)
            problems = [*archive.problems]
            if not same(str(found_name), str(found_version), name, version):
                problems.append(f"its name says {found_name} {found_version}, not {name} {version}")
            problems += tag_problems(sorted(map(str, tags)))
            if not archive.problems:
                problems += content_problems(archive, name, allowed=allowed)
    except (*BROKEN, InvalidWheelFilename) as error:
        return (f"it is not a wheel: {error}",)
    more = [f"and {len(problems) - _ENOUGH} more problems"] if len(problems) > _ENOUGH else []
    return (*problems[:_ENOUGH], *more)


@cache
def installed_size(wheel: str) -> int:
    """Return the bytes of a wheel's unpacked files and of the bytecode that pip compiles.

    Wheels of a store never change, so each is read once.
    """
    try:
        with zipfile.ZipFile(wheel) as file:
            members = file.infolist()
    except BROKEN:
        return 0  # its audit says so
    compiled = (member.file_size for member in members if member.filename.endswith(".py"))
    return sum(member.file_size for member in members) + sum(compiled)


@cache
def announced_commands(wheel: str) -> tuple[str, ...]:
    """Return the names that a wheel adds to the release's bin/, for the node to compare."""
    try:
        with zipfile.ZipFile(wheel) as file:
            return announced_files(Archive(file))
    except (*BROKEN, Unclear):
        return ()  # its audit refuses it
