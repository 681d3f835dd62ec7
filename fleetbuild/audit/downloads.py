"""Check wheels that others built.

In: files that the lock names. Out: a sentence for each problem. Of their code only the folders are
read in which it looks for libraries: a published wheel chooses the rest at run time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fleetbuild.audit.archive import BROKEN, opened_here
from fleetbuild.audit.content import announced_files
from fleetbuild.audit.entry_points import info_folder
from fleetbuild.audit.limited_process import read_apart
from fleetbuild.audit.metadata import other_package
from fleetbuild.audit.wheel import audit_wheel

RULES = 6  # raised with every change of these rules, so that stored results are checked again


def audit_download(
    path: Path, name: str, version: str, allowed: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return what a downloaded wheel holds and may not."""
    audit = audit_wheel(path, allowed=allowed, read_code=False, published=True)
    return (*other_package(audit, name, version), *audit.problems)


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Return the linked libraries that a wheel does not contain; empty if it is damaged."""
    elfs = audit_wheel(path, read_code=False, published=True).elfs
    names = {PurePosixPath(name).name for name in contents_of(path).names}
    return tuple(sorted({name for elf in elfs for name in elf.needed} - names))


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
                archive.installed_size, announced_files(archive), archive.names, metadata
            )
    return Contents()
