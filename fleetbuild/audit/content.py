"""What a wheel may hold: its own files, and nothing that takes over a release.

In: the names and small texts of an archive. Out: a sentence for each file that is not allowed. A
release is a virtual environment: a `.pth` file or sitecustomize runs in every Python of it, a
script called python3 replaces its interpreter, and a module called json replaces Python's own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fleetbuild.audit.archive import Archive
from fleetbuild.audit.entry_points import (
    COMMANDS,
    EntryPoint,
    Unclear,
    entry_points,
    info_folder,
    known_entry_points,
)
from fleetbuild.hardware.data import load

_HOOKS = ("sitecustomize", "usercustomize")
# Commands of a virtual environment, of fleetbuild, and uv, which fleetbuild looks for on PATH.
_OWN_COMMAND = re.compile(
    r"(python|pip|pypy)[\d.]*t?|uvx?|(de)?activate(_this)?(\.\w+)?|fleetbuild(-sanity)?", re.I
)
_COMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", re.ASCII)
_PLATFORM = re.compile(r"any|(linux|manylinux\w+|musllinux\w+)_\w+", re.ASCII)
_PYTHON = re.compile(r"(cp|py)\d+", re.ASCII)
_ABI = re.compile(r"none|abi3|cp\d+[a-z]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def content_problems(
    archive: Archive, name: str, *, allowed: Iterable[str] = (), top_level: Collection[str] = ()
) -> Iterator[str]:
    """Yield what a wheel of this name holds and may not.

    `allowed` are patterns of files to allow all the same. `top_level`, if given, are the only
    names that it may bring to site-packages.
    """
    patterns = (*allowed, *content_table()["allowed"].get(canonicalize_name(name), ()))
    info = info_folder(archive)
    places = {installed_path(file) for file in archive.names}
    for file in archive.names:
        if any(fnmatchcase(file, pattern) for pattern in patterns):
            continue
        if "__pycache__" in file.split("/") and _source_of(installed_path(file)) not in places:
            yield f"{file!r} is compiled code of a module that the wheel does not bring"
        else:
            yield from _file_problems(file, name, info, frozenset(top_level))
    if not info:
        yield "it must have exactly one .dist-info folder"
        return
    try:
        found = entry_points(archive)
    except Unclear as error:
        yield f"its entry_points.txt has no single reading: {error}"
        return
    for command in _commands(found):
        why = _command_problem(command)
        if why and not any(fnmatchcase(f"entry point {command}", pattern) for pattern in patterns):
            yield f"its entry point {command!r} {why}"


def tag_problems(tags: Iterable[str]) -> Iterator[str]:
    """Yield the tags that no Python on Linux has."""
    for tag in tags:
        python, abi, platform = (*tag.split("-"), "", "")[:3]
        parts = ((_PYTHON, python), (_ABI, abi), (_PLATFORM, platform))
        if not all(pattern.fullmatch(part) for pattern, part in parts):
            yield f"its tag {tag!r} is for no Python on Linux"


def installed_path(file: str) -> str:
    """Return where a member is installed: below site/ or below the release itself."""
    first, _, rest = file.partition("/")
    if not first.endswith(".data"):
        return f"site/{file}"
    kind, _, inner = rest.partition("/")
    folders = {"purelib": "site/", "platlib": "site/", "scripts": "bin/", "headers": "include/"}
    return folders.get(kind, "") + inner


def _commands(found: Iterable[EntryPoint]) -> list[str]:
    return [entry_point.name for entry_point in found if entry_point.group in COMMANDS]


def announced_files(archive: Archive) -> tuple[str, ...]:
    """Return the names that installing a wheel adds to bin/."""
    places = (installed_path(member) for member in archive.names)
    scripts = {place.split("/")[1] for place in places if place.startswith("bin/")}
    return tuple(sorted(scripts.union(_commands(known_entry_points(archive)))))


def _source_of(compiled: str) -> str:
    """Return the place of the module that a file in __pycache__ was compiled from."""
    path = PurePosixPath(compiled)
    return str(path.parent.parent / f"{path.name.split('.')[0]}.py")


def _file_problems(file: str, name: str, info: str, top_level: frozenset[str]) -> Iterator[str]:
    path = installed_path(file)
    if _CONTROL.search(file) or str(PurePosixPath(file)) != file:
        yield f"{file!r} is not a plain file name"
    elif path.startswith("site/"):
        yield from _module_problems(file, path.removeprefix("site/"), name, info, top_level)
    elif path.startswith("bin/"):
        command = path.removeprefix("bin/")
        if why := _command_problem(command):
            yield f"{file!r} {why}"
    elif "/" not in path or path.startswith(("lib/python", "lib64/", "Scripts/")):
        yield f"{file!r} would replace a file of the release"


def _module_problems(
    file: str, path: str, name: str, info: str, top_level: frozenset[str]
) -> Iterator[str]:
    first, _, rest = path.partition("/")
    if first == info:
        if not file.startswith(f"{info}/"):
            yield f"{file!r} would replace what the wheel says about itself"
        return
    if first.lower().endswith((".dist-info", ".egg-info", ".egg")):  # as Python reads them
        yield f"{file!r} would describe another package"
        return
    if first == "__pycache__":
        first, rest = rest, ""
    module = first if rest else first.split(".")[0]
    if first.endswith((".pth", ".start", ".egg-link")) or module in _HOOKS:
        yield f"{file!r} would run in every Python of the release"
    elif module in sys.stdlib_module_names:
        yield f"{file!r} would replace a module of the standard library"
    elif owner := _owners().get(module):
        if canonicalize_name(name) != owner:
            yield f"{file!r} belongs to {owner}, not to {name}"
    elif top_level and module.removesuffix(".libs") not in top_level:
        yield f"{file!r} is not below {', '.join(sorted(top_level))}, the names of {name}"


def _command_problem(command: str) -> str | None:
    if not _COMMAND.fullmatch(command):
        return "is not a plain command name"
    if _OWN_COMMAND.fullmatch(command):
        return "would replace a command of the release"
    return None


@cache
def content_table() -> dict[str, Any]:
    """Return data/content.yml."""
    return load("content.yml", "fleetbuild.audit")


@cache
def _owners() -> dict[str, str]:
    return {
        module: name for name, modules in content_table()["owners"].items() for module in modules
    }
