"""Read METADATA, WHEEL and RECORD of a wheel, and check that they agree."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from email.parser import HeaderParser

from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from fleetbuild.audit.archive import BROKEN, Archive
from fleetbuild.audit.entry_points import info_folder
from fleetbuild.audit.models import WheelAudit

_UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_LONGEST = 200  # characters of a name or a version that are shown
_LIBC = re.compile(r"-(?:many|musl)linux[0-9_]+_(?=[a-z])")
_ALGORITHMS = ("sha256", "sha384", "sha512")


def read_metadata(archive: Archive, audit: WheelAudit) -> WheelAudit:
    """Return an audit with what a wheel's dist-info says, compared with its name and content."""
    folder = info_folder(archive)
    if not folder:
        return audit  # a problem of its content
    headers = HeaderParser().parsestr(archive.text(f"{folder}/METADATA") or "")
    name, version = (str(headers.get(key) or "")[:_LONGEST] for key in ("Name", "Version"))
    problems = (
        *audit.problems,
        *_name_problems(folder, name, version, audit),
        *_tag_problems(archive.text(f"{folder}/WHEEL"), audit),
        *_record_problems(archive, folder),
    )
    requires = tuple(map(str, headers.get_all("Requires-Dist") or ()))
    found = {"name": name or None, "version": version or None, "requires": requires}
    return audit.model_copy(update={**found, "problems": problems})


def _name_problems(folder: str, name: str, version: str, audit: WheelAudit) -> Iterator[str]:
    if not name or not version:
        yield "its METADATA has no Name or no Version"
        return
    inside = f"METADATA says {name} {version}"
    if audit.file_name and not same(name, version, audit.file_name, audit.file_version or ""):
        yield f"{inside}, its file name says {audit.file_name} {audit.file_version}"
    distribution, _, release = folder.removesuffix(".dist-info").partition("-")
    if not same(name, version, distribution, release):
        yield f"{inside}, its dist-info folder is called {folder}"


def other_package(audit: WheelAudit, package: str, version: str) -> Iterator[str]:
    """Yield a sentence if a wheel is, by its name, of another package or version."""
    name, actual = audit.file_name, audit.file_version or ""
    if name and not same(name, actual, package, version):
        yield f"{audit.file} should be {package} {version}, but its name says {name} {actual}"


def same(name: str, version: str, other_name: str, other_version: str) -> bool:
    """Return whether two spellings mean the same distribution."""
    if canonicalize_name(name) != canonicalize_name(other_name):
        return False
    try:
        return Version(version) == Version(other_version)
    except ValueError:  # InvalidVersion, or a number of more digits than Python reads
        return version == other_version


def _tag_problems(text: str | None, audit: WheelAudit) -> Iterator[str]:
    if text is None:
        yield "it has no readable WHEEL file"
        return
    lines = HeaderParser().parsestr(text).get_all("Tag") or []
    # A line of many alternatives would multiply to more tags than memory holds.
    short = [line for line in lines if line.count("-") == 2 and len(line) <= 255]
    tags = {str(tag) for line in short for tag in parse_tag(line)}
    # A wheel of the platform linux that was renamed says so in its name alone, as vllm's do: what
    # its code needs of the libc is read from the code.
    unnamed = {_LIBC.sub("-linux_", tag) for tag in audit.tags}
    if audit.tags and tags not in (set(audit.tags), unnamed):
        listed = ", ".join(sorted(tags)) or "no tags"
        yield f"WHEEL says {listed}, its file name says {', '.join(audit.tags)}"


def _record_problems(archive: Archive, folder: str) -> Iterator[str]:
    text = archive.text(f"{folder}/RECORD")
    if text is None:
        yield "it has no readable RECORD"
        return
    try:
        rows = record_rows(text)
    except csv.Error as error:
        yield f"its RECORD cannot be read: {error}"
        return
    unhashed = {f"{folder}/{name}" for name in _UNHASHED}
    for name in archive.names:
        if name not in unhashed:
            yield from _row_problems(archive, name, rows.get(name))
    for name in rows.keys() - set(archive.names) - unhashed:
        yield f"RECORD lists {name!r}, but the wheel does not contain it"


def record_rows(text: str) -> dict[str, list[str]]:
    """Return the rows of a RECORD by path; of several for one path, the last."""
    return {row[0]: row for row in csv.reader(text.splitlines()) if row}


def _row_problems(archive: Archive, name: str, row: list[str] | None) -> Iterator[str]:
    algorithm, _, wanted = row[1].partition("=") if row and len(row) > 1 else ("", "", "")
    if algorithm not in _ALGORITHMS:
        yield f"{name!r} has no valid hash in RECORD"
        return
    try:
        digest = archive.digest(name, algorithm)
    except BROKEN as error:
        yield f"{name!r} cannot be unpacked: {error}"
        return
    if digest != wanted:
        yield f"{name!r} does not match RECORD: {algorithm} differs"
