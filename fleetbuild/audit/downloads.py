"""Check wheels that others built, and the wheels of a release against each other.

In: files that the lock names. Out: a sentence for each problem. Their code is not read: a published
wheel chooses it at run time, and its hash is in the lock.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from fleetbuild.audit.archive import BROKEN, Archive
from fleetbuild.audit.content import commands_of, content_problems, installed_path, tag_problems
from fleetbuild.audit.metadata import same

RULES = 1  # raised with every change of content.py, so that stored results are checked again
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
def installed_size(wheel: Path) -> int:
    """Return the bytes of a wheel's unpacked files and of the bytecode that pip compiles.

    Wheels of a store never change, so each is read once.
    """
    try:
        with zipfile.ZipFile(wheel) as file:
            members = file.infolist()
    except BROKEN:
        return 0  # its audit says so
    compiled = (each.file_size for each in members if each.filename.endswith(".py"))
    return sum(each.file_size for each in members) + sum(compiled)


def shared_files(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return a sentence for each file that two wheels of a release install differently.

    The same bytes are allowed: packages of one namespace often bring the same __init__.py.
    """
    owners: dict[str, tuple[Archive, str, Path]] = {}
    commands: dict[str, Path] = {}
    problems = []
    with ExitStack() as opened:
        for path in paths:
            try:
                archive = Archive(opened.enter_context(zipfile.ZipFile(path)))
            except BROKEN:
                continue  # each wheel was audited on its own
            for member in archive.names:
                place = installed_path(member)
                other, name, owner = owners.setdefault(place, (archive, member, path))
                if owner != path and archive.digest(member, "sha256") != other.digest(
                    name, "sha256"
                ):
                    problems.append(f"{place} belongs to {owner.name} and to {path.name}")
            problems += [
                f"bin/{command} belongs to {owner.name} and to {path.name}"
                for command in commands_of(archive)
                if (owner := commands.setdefault(command, path)) != path
            ]
    return tuple(problem.removeprefix("site/") for problem in problems)
