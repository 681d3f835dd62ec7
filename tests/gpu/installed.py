"""Wheels made again from installed packages, because a machine without a network has no others."""

from __future__ import annotations

import importlib.metadata
import re
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def with_requirements(name: str) -> list[importlib.metadata.Distribution]:
    """Return an installed distribution and all that it requires here."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, frozenset[str]())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        distribution = importlib.metadata.distribution(asked[0])
        found[canonicalize_name(asked[0])] = distribution
        for text in distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            extras = ["", *asked[1]]
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return list(found.values())


def wheel_of(distribution: importlib.metadata.Distribution, folder: Path) -> Path:
    """Write the wheel that this distribution was installed from, as far as its files show."""
    tags = re.findall(r"^Tag: (\S+)", distribution.read_text("WHEEL") or "", re.MULTILINE)
    if not tags:
        raise ValueError(f"{distribution.name} was not installed from a wheel")
    stem = re.sub(r"[-_.]+", "_", distribution.name)
    path = folder / f"{stem}-{distribution.version}-{_joined(tags)}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for file in distribution.files or ():
            place = Path(str(file.locate()))
            # Programs are made again, and compiled files are not part of a wheel.
            if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
                wheel.write(place, file.as_posix())
    return path


def _joined(tags: list[str]) -> str:
    """Return the tags as a file name has them: cp312-cp312-manylinux1_x86_64.linux_x86_64."""
    columns = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(dict.fromkeys(column)) for column in columns)
