"""Compare two builds of one wheel, to confirm that one node alone did not decide its content.

In: two wheel files. Out: a sentence for each file that differs. The archives themselves may differ:
order, times and compression of members are not content, and RECORD follows from the other files.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from fleetbuild.audit.archive import BROKEN, Archive


def differences(one: Path, other: Path) -> tuple[str, ...]:
    """Return the files of two wheels that differ; empty if both have the same content."""
    try:
        with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
            return tuple(_compare(Archive(first), Archive(second)))
    except BROKEN as error:
        return (f"a wheel cannot be read: {error}",)


def _compare(first: Archive, second: Archive) -> list[str]:
    if problems := (*first.problems, *second.problems):
        return list(problems[:1])
    names, others = _content(first), _content(second)
    found = [f"only the first build has {name}" for name in sorted(names - others)]
    found += [f"only the second build has {name}" for name in sorted(others - names)]
    for name in sorted(names & others):
        (digest, size), (digest2, size2) = (each.digest(name, "sha256") for each in (first, second))
        if digest != digest2:
            sizes = f"{size} bytes each" if size == size2 else f"{size} and {size2} bytes"
            found.append(f"{name} differs ({sizes})")
    return found


def _content(archive: Archive) -> set[str]:
    return {name for name in archive.names if not name.endswith(".dist-info/RECORD")}
