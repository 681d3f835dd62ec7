"""Check wheels that others built.

In: files that the lock names. Out: a sentence for each problem. Of their code only the folders are
read in which it looks for libraries: a published wheel chooses the rest at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

from packaging.utils import parse_wheel_filename

from fleetbuild.audit.archive import BROKEN, Archive, opened_here
from fleetbuild.audit.content import announced_files, content_problems, tag_problems
from fleetbuild.audit.elf import MAGIC, Elf
from fleetbuild.audit.entry_points import Unclear, info_folder
from fleetbuild.audit.limited_process import SECONDS, read_apart, seconds_for, too_much
from fleetbuild.audit.metadata import same
from fleetbuild.audit.search_paths import search_path_problems
from fleetbuild.text import first_few

RULES = 5  # raised with every change of these rules, so that stored results are checked again
_ENOUGH = 5


def audit_download(
    path: Path, name: str, version: str, allowed: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return what a downloaded wheel holds and may not."""
    found = read_apart(audit_here, path, name=name, version=version, allowed=tuple(allowed))
    if found is None:
        return (f"it {too_much(seconds_for(path.stat().st_size, SECONDS))}",)
    return tuple(found)


def audit_here(path: Path, name: str, version: str, allowed: Iterable[str]) -> tuple[str, ...]:
    """Check a wheel in this process, the separate one."""
    try:
        found_name, found_version, _, tags = parse_wheel_filename(path.name)
        with opened_here(path) as archive:
            problems = [*archive.problems]
            if not same(str(found_name), str(found_version), name, version):
                problems.append(f"its name says {found_name} {found_version}, not {name} {version}")
            problems += tag_problems(sorted(map(str, tags)))
            if not archive.problems:
                problems += content_problems(archive, name, allowed=allowed)
                problems += _search_paths(archive, allowed)
    except BROKEN as error:
        return (f"it is not a wheel: {error}",)
    return first_few(problems, _ENOUGH)


def _search_paths(archive: Archive, allowed: Iterable[str]) -> Iterator[str]:
    for name in archive.names:
        if archive.head(name) == MAGIC and not any(fnmatchcase(name, each) for each in allowed):
            with suppress(*BROKEN), archive.mapped(name) as data:
                yield from search_path_problems(name, Elf(data).search_paths)


class Contents(NamedTuple):
    """What a wheel holds."""

    size: int = 0  # of its unpacked files and of the bytecode that pip compiles
    commands: tuple[str, ...] = ()  # the names that it adds to the release's bin/
    names: tuple[str, ...] = ()  # of its files
    metadata: str = ""  # the text of METADATA


@cache
def contents_of(wheel: Path) -> Contents:
    """Return what a wheel holds; nothing if its audit refuses it.

    Wheels of a store never change, so each is read once.
    """
    size, commands, names, metadata = read_apart(contents_here, wheel) or Contents()
    return Contents(size, tuple(commands), tuple(names), metadata)


def contents_here(wheel: Path) -> Contents:
    """Read a wheel in this process, the separate one."""
    with suppress(*BROKEN), opened_here(wheel) as archive:
        if not archive.problems:
            metadata = archive.text(f"{info_folder(archive)}/METADATA") or ""
            return Contents(
                archive.installed_size, known_commands(archive), archive.names, metadata
            )
    return Contents()


def known_commands(archive: Archive) -> tuple[str, ...]:
    """Return the names that a wheel adds to bin/; none if its audit refuses its entry points."""
    try:
        return announced_files(archive)
    except Unclear:
        return ()
