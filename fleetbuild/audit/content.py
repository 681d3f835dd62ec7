"""What a wheel may hold: its own files, and nothing that takes over a release.

In: the names and small texts of an archive. Out: a sentence for each file that is not allowed. A
release is a virtual environment: a `.pth` file or sitecustomize runs in every Python of it, a
script called python3 replaces its interpreter, and a module called json replaces Python's own.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

import yaml
from packaging.utils import canonicalize_name

from fleetbuild.audit.archive import Archive

_HOOKS = ("sitecustomize", "usercustomize")
# Commands of a virtual environment and of fleetbuild.
_OWN_COMMAND = re.compile(
    r"(python|pip|pypy)[\d.]*t?|(de)?activate(_this)?(\.\w+)?|fleetbuild(-sanity)?", re.I
)
_COMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", re.ASCII)
_PLATFORM = re.compile(r"any|(linux|manylinux\w+|musllinux\w+)_\w+", re.ASCII)
_PYTHON = re.compile(r"(cp|py)\d+", re.ASCII)
_ABI = re.compile(r"none|abi3|cp\d+[a-z]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Of .data/data, which is unpacked over the release: folders without any part in running it.
_HARMLESS = ("share", "etc", "include", "man")


def content_problems(
    archive: Archive, name: str, *, allowed: Iterable[str] = (), top_level: Collection[str] = ()
) -> Iterator[str]:
    """Yield what a wheel of this name holds and may not.

    `allowed` are patterns of files to allow all the same. `top_level`, if given, are the only
    names that it may bring to site-packages.
    """
    patterns = (*allowed, *_table()["allowed"].get(canonicalize_name(name), ()))
    for file in archive.names:
        if not any(fnmatchcase(file, pattern) for pattern in patterns):
            yield from _file_problems(file, name, frozenset(top_level))
    info = next((n.split("/")[0] for n in archive.names if n.endswith(".dist-info/METADATA")), "")
    for command in _entry_points(archive.text(f"{info}/entry_points.txt") or ""):
        pattern = f"entry point {command}"
        why = _command_problem(command)
        if why and not any(fnmatchcase(pattern, each) for each in patterns):
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


def commands_of(archive: Archive) -> tuple[str, ...]:
    """Return the commands that installing the wheel makes by its entry points."""
    info = next((n.split("/")[0] for n in archive.names if n.endswith(".dist-info/METADATA")), "")
    return tuple(_entry_points(archive.text(f"{info}/entry_points.txt") or ""))


def _file_problems(file: str, name: str, top_level: frozenset[str]) -> Iterator[str]:
    path = installed_path(file)
    if _CONTROL.search(file) or str(PurePosixPath(file)) != file:
        yield f"{file!r} is not a plain file name"
    elif path.startswith("site/"):
        yield from _module_problems(file, path.removeprefix("site/"), name, top_level)
    elif path.startswith("bin/"):
        command = path.removeprefix("bin/")
        if why := _command_problem(command):
            yield f"{file!r} {why}"
    elif not path.startswith(tuple(f"{folder}/" for folder in _HARMLESS)) and (
        path.count("/") == 0 or path.startswith(("lib/python", "lib64/", "Scripts/"))
    ):
        yield f"{file!r} would replace a file of the release"


def _module_problems(file: str, path: str, name: str, top_level: frozenset[str]) -> Iterator[str]:
    first, _, rest = path.partition("/")
    if first.endswith((".dist-info", ".egg-info")):
        return
    module = first if rest else first.split(".")[0]
    if (not rest and first.endswith((".pth", ".egg-link"))) or module in _HOOKS:
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


def _entry_points(text: str) -> Iterator[str]:
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        yield "\n"  # installers read such a file in different ways
        return
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            yield from parser.options(section)


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    text = files("fleetbuild.audit").joinpath("data/content.yml").read_text("utf-8")
    table: dict[str, dict[str, list[str]]] = yaml.safe_load(text)
    return table


@cache
def _owners() -> dict[str, str]:
    return {module: name for name, modules in _table()["owners"].items() for module in modules}
