"""Images: the official Python image for a group's wheels, and the names of its own images.

In: a group and its wheels. Out: names, and a note or a warning about system libraries that the
image must contain, because no wheel of the release does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from packaging.version import InvalidVersion, Version

from fleetbuild.extensions.kubernetes.manifests.names import label_value
from fleetbuild.hardware.data import load
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile, Target

_ABI = re.compile(r"cp(3)(\d{1,2})")
_OWN_PYTHON = "libpython3."  # the image's Python brings its own


def default_image(target: Target) -> str | None:
    """Return the official Python image that a target's wheels run in, or None if none is known."""
    abi = _ABI.fullmatch(target.python)
    if abi is None:  # no official image exists for free-threaded Pythons and other interpreters
        return None
    for row in _table()["images"][target.libc.family]:
        if _at_least(row["libc"], target.libc.floor):
            return str(row["image"]).format(python=f"{abi[1]}.{abi[2]}")
    return None


def lacking(target: Target, wheels: Sequence[ReleaseFile], *, official: bool) -> tuple[str, ...]:
    """Return the libraries that wheels are linked with and that neither they nor the image contain.

    Of other images than the official ones, only the libraries of every pod are known.
    """
    table, family = _table(), target.libc.family
    present = {*table["everywhere"], *table["base"][family]}
    if official:
        present.update(table["official"][family])
    needed = {name for wheel in wheels for name in wheel.needs}
    return tuple(sorted(name for name in needed - present if not name.startswith(_OWN_PYTHON)))


def image_name(repository: str, group: PlannedGroup, what: str = "") -> str:
    """Return the name of a group's own image.

    Each release has another tag, so a tag never moves.
    """
    # A tag may be longer than a label's value, and takes the same letters.
    return f"{repository}:{label_value(group.name)}-{group.release_id}{what and '-' + what}"


def index_name(repository: str, groups: Sequence[PlannedGroup]) -> str:
    """Return one name for the images of several architectures. Other members make another name."""
    members = " ".join(sorted(f"{group.name}-{group.release_id}" for group in groups))
    return f"{repository}:any-{hashlib.sha256(members.encode()).hexdigest()[:16]}"


def _at_least(version: str, floor: str) -> bool:
    try:
        return Version(version) >= Version(floor)
    except InvalidVersion:
        return False


@cache
def _table() -> dict[str, Any]:
    return load("images.yml", "fleetbuild.extensions.kubernetes")


_LACKING = """\
The wheels are linked with libraries that neither they nor {image} contain:
{libraries}
Add them to the image that runs, or bundle them (libraries: bundle in the recipe)."""
_WANTED = """\
The wheels are linked with libraries that they do not contain, so {image} must contain:
{libraries}"""


def library_note(group: PlannedGroup, wheels: Sequence[ReleaseFile], own: str | None) -> str:
    """Return a comment about missing libraries in `own`, else in the official image, or ""."""
    missing = lacking(group.target, wheels, official=own is None)
    if not missing:
        return ""
    text = _WANTED if own else _LACKING
    libraries = "\n".join(f"  {each}" for each in missing)
    return "\n\n" + text.format(image=own or default_image(group.target), libraries=libraries)


def library_warnings(plan: Plan, wheels: Mapping[str, Sequence[ReleaseFile]]) -> tuple[str, ...]:
    """Return a sentence for each group whose wheels need more than the official image has."""
    return tuple(
        f"{group.name}: its wheels are linked with {', '.join(missing)}, which"
        f" {default_image(group.target)} lacks; name an image that has them with --image, or set"
        " libraries: bundle in the recipe."
        for group in plan.groups
        if (missing := lacking(group.target, wheels.get(group.name, ()), official=True))
    )
