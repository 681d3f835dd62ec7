"""Wheels made again from installed packages, because a machine without a network has no others."""

from __future__ import annotations

import importlib.metadata
import re
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def with_requirements(*names: str) -> list[importlib.metadata.Distribution]:
    """Return the installed ones of these distributions and all that they require here."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, frozenset[str]()) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        try:
            distribution = importlib.metadata.distribution(asked[0])
        except importlib.metadata.PackageNotFoundError:
            continue  # whoever needs it says so: a plan, for example
        found[canonicalize_name(asked[0])] = distribution
        for text in distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            extras = ["", *asked[1]]
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return list(found.values())


def wheel_of(distribution: importlib.metadata.Distribution, folder: Path) -> Path:
    """Write the wheel that this distribution was installed from, as far as its files show.

    It is kept if it is there already.
    """
    tags = re.findall(r"^Tag: (\S+)", distribution.read_text("WHEEL") or "", re.MULTILINE)
    if not tags:
        raise ValueError(f"{distribution.name} was not installed from a wheel")
    stem = re.sub(r"[-_.]+", "_", distribution.name)
    path = folder / f"{stem}-{distribution.version}-{_joined(tags)}.whl"
    if path.exists():
        return path
    part = path.with_suffix(".part")  # of a test that was ended, say
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as wheel:
        for file in distribution.files or ():
            place = Path(str(file.locate()))
            # Programs are made again, and compiled files are not part of a wheel.
            if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
                wheel.write(place, file.as_posix())
    return part.rename(path)


def _joined(tags: list[str]) -> str:
    """Return the tags as a file name has them: cp312-cp312-manylinux1_x86_64.linux_x86_64."""
    columns = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(dict.fromkeys(column)) for column in columns)
