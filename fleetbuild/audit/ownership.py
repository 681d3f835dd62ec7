"""Compare the wheels of a release: each import name and each command belongs to one of them.

In: the wheels of a release, before anything is installed. Out: a sentence for each second owner,
and a warning for each wheel that another package loads by itself.

A second wheel could otherwise add modules to torch, or be imported in place of six. Namespaces are
shared: folders without __init__.py, or with one that only declares the namespace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packaging.utils import canonicalize_name

from fleetbuild.audit.archive import BROKEN, Archive, opened_here
from fleetbuild.audit.content import announced_files, content_table, installed_path
from fleetbuild.audit.entry_points import known_entry_points
from fleetbuild.audit.limited_process import read_apart

_NAMESPACE = re.compile(r"declare_namespace\(__name__\)|extend_path\(__path__, *__name__\)")
# Lines that a namespace's __init__.py may have beside that call; any other line is code.
_BESIDE = re.compile(
    r"(try:|except (ImportError|ModuleNotFoundError):|pass|import pkgutil|import pkg_resources"
    r"|from pkgutil import extend_path|from typing import \w+|(\"\"\"|''')[^\"']*)?"
)


class _Wheel(NamedTuple):
    path: Path
    name: str
    archive: Archive
    files: Mapping[str, str]  # place below site/ or the release -> member


def owners(
    paths: Iterable[Path], allowed: Mapping[str, Collection[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a sentence for each import name, file and command that two wheels of a release bring.

    Also one for each wheel that another package of the release imports by itself. `allowed` are
    patterns of files, by package, that may lie in another package's folder.
    """
    patterns = {name: tuple(files) for name, files in allowed.items()}
    found = read_apart(owners_here, *paths, allowed=patterns)
    if found is None:
        return ("the files of the wheels take too much time or memory to compare",), ()
    problems, warnings = found
    return tuple(problems), tuple(warnings)


def owners_here(
    *paths: Path, allowed: Mapping[str, Collection[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare the wheels in this process, the separate one."""
    with ExitStack() as opened:
        wheels = list(_wheels_here(paths, opened))
        shared = (*_shared_files(wheels), *_shared_names(wheels, allowed))
        return shared, tuple(_loaded_by_others(wheels))


def _loaded_by_others(wheels: Sequence[_Wheel]) -> Iterator[str]:
    names = {wheel.name for wheel in wheels}
    return (
        f"{wheel.path.name} is loaded by {loader} by itself (entry points {group})"
        for group, loader in content_table()["autoload"].items()
        if loader in names
        for wheel in wheels
        if wheel.name != loader
        and any(group == each.group for each in known_entry_points(wheel.archive))
    )


def _wheels_here(paths: Iterable[Path], stack: ExitStack) -> Iterator[_Wheel]:
    for path in paths:
        try:
            archive = stack.enter_context(opened_here(path))
        except BROKEN:
            continue  # each wheel was audited on its own
        files = {installed_path(member): member for member in archive.names}
        yield _Wheel(path, canonicalize_name(path.name.split("-")[0]), archive, files)


def _shared_files(wheels: Iterable[_Wheel]) -> Iterator[str]:
    """Yield files that two wheels install differently, and commands that two wheels bring."""
    owners: dict[str, tuple[_Wheel, str]] = {}
    for wheel in wheels:
        places = {place: file for place, file in wheel.files.items() if place[:4] != "bin/"}
        places |= {f"bin/{command}": "" for command in announced_files(wheel.archive)}
        for place, member in places.items():
            owner, other = owners.setdefault(place, (wheel, member))
            if owner is not wheel and not (
                member and _digest(wheel, member) == _digest(owner, other)
            ):
                yield _twice(place.removeprefix("site/"), owner, wheel)


def _shared_names(
    wheels: Iterable[_Wheel], allowed: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Yield import names of a second wheel, in the order of the wheels."""
    names = [(wheel, _import_names(wheel, allowed)) for wheel in wheels]
    owners: dict[str, tuple[_Wheel, bool]] = {}
    for wheel, brought in names:  # those who have code in __init__.py come first
        for name, owns in brought.items():
            if owns and not owners.get(name, (wheel, False))[1]:
                owners[name] = wheel, True
    for wheel, brought in names:
        for name, owns in brought.items():
            owner, exclusive = owners.setdefault(name, (wheel, owns))
            if owner is not wheel and exclusive:
                yield _twice(f"the import name {name.replace('/', '.')}", owner, wheel)


def _import_names(wheel: _Wheel, allowed: Mapping[str, Collection[str]]) -> dict[str, bool]:
    """Return the names that a wheel brings, and whether each is its alone.

    Below a name of its own nothing is listed: what another wheel puts there has that name, too.
    """
    found: dict[str, bool] = {}
    patterns = allowed.get(wheel.name, ())
    for place, member in sorted(wheel.files.items()):
        first, _, path = place.partition("/")
        if first != "site" or any(fnmatchcase(member, pattern) for pattern in patterns):
            continue
        parts = PurePosixPath(path).parts
        if parts[0].endswith((".dist-info", ".libs")) or "__pycache__" in parts:
            continue
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in found:
                found[folder] = _is_own(wheel, folder)
            if found[folder]:
                break
        else:
            module = _stem(path)
            if module != "__init__" and parts[-1].endswith((".py", ".so", ".pyc")):
                found["/".join((*parts[:-1], module))] = True
    return found


def _is_own(wheel: _Wheel, folder: str) -> bool:
    """Return whether a folder is a package of this wheel's alone, and no namespace."""
    if folder in content_table()["namespaces"]:
        return False
    inits = (
        wheel.archive.text(member)
        for place, member in wheel.files.items()
        if place.rpartition("/")[0] == f"site/{folder}" and _stem(place) == "__init__"
    )
    return not all(_declares_namespace(text or "") for text in inits)


def _declares_namespace(text: str) -> bool:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    code = [line for line in lines if not _BESIDE.fullmatch(line)]
    return bool(code) and all(_NAMESPACE.search(line) for line in code)


def _stem(place: str) -> str:
    return place.rpartition("/")[2].partition(".")[0]


def _digest(wheel: _Wheel, member: str) -> str | None:
    try:
        return wheel.archive.digest(member, "sha256")
    except BROKEN:
        return None


def _twice(what: str, owner: _Wheel, other: _Wheel) -> str:
    return f"{what} belongs to {owner.path.name} and to {other.path.name}"
