"""Read a source's files and metadata in a separate process, without running any of its code.

In: an sdist, archive or tree. Out: its files, `SourceMetadata`.
"""

from __future__ import annotations

import os
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.parser import HeaderParser
from functools import partial
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import Version

from fleetbuild.audit.limited_process import SECONDS, read_apart, seconds_for, too_much
from fleetbuild.errors import ConfigError
from fleetbuild.models._base import Frozen

_DEFAULT_BACKEND = "setuptools.build_meta:__legacy__"  # PEP 517's, for a source that names none
_DEFAULT_REQUIRES = ("setuptools>=40.8.0", "wheel")
_METADATA = ("PKG-INFO", "pyproject.toml")
MAX_TEXT = 1 << 20
_MAX_LINE = 10_000  # the work for a key of many parts grows with its square
LONG_NUMBER = re.compile(r"[0-9]{300}")  # no version and no size has one
MAX_MEMBERS = 500_000
MAX_BYTES = 16 << 30


class SourceMetadata(Frozen):
    """Name, version and build backend of a source."""

    name: str | None = None
    version: str | None = None
    backend: str = _DEFAULT_BACKEND
    backend_path: tuple[str, ...] = ()  # folders of the source that hold its backend
    build_requirements: tuple[str, ...] = _DEFAULT_REQUIRES
    requires: tuple[str, ...] | None = None  # at run time; None: known only when its build runs
    requires_python: str | None = None


def read_source(path: Path) -> SourceMetadata:
    """Return the static metadata of an sdist, archive or tree."""
    return SourceMetadata.model_validate(read_strange(source_here, path))


def read_strange(read: Callable[[Path], object], path: Path) -> Any:
    """Return what a function finds in a source, in the separate process; raise ConfigError."""
    if not (path.is_file() or path.is_dir()):  # such as a pipe or a device, which never ends
        raise unreadable(path, "it is neither a file nor a folder")
    found = read_apart(read, path)
    if found is None:
        raise unreadable(path, f"it {too_much(seconds_for(path.stat().st_size, SECONDS))}")
    return found


def read_pyproject(text: str, source: str) -> SourceMetadata:
    """Return the metadata in the pyproject.toml of a repository."""
    seconds, texts = seconds_for(len(text), SECONDS), {"pyproject.toml": text}
    found = read_apart(read_texts, seconds=seconds, texts=texts, source=source)
    if found is None:
        raise unreadable(source, f"its pyproject.toml {too_much(seconds)}")
    return SourceMetadata.model_validate(found)


def unreadable(path: Path | str, why: object) -> ConfigError:
    """Return the error about a file that cannot be read as a source."""
    return ConfigError(
        f"{path} cannot be read as a source archive: {why}.",
        "Name an sdist (.tar.gz), a .zip, or a source tree.",
    )


def source_here(path: Path) -> SourceMetadata:
    """Read the metadata in this process, the separate one."""
    if path.is_dir():
        texts = {name: _text_of(path / name) for name in _METADATA}
    else:
        texts = {}
        with reading(path):
            for name, read in source_files(path):
                if name in _METADATA:
                    texts[name] = read()
                if len(texts) == len(_METADATA):
                    break
    return read_texts(texts, str(path))


def read_texts(texts: Mapping[str, str], source: str) -> SourceMetadata:
    """Read the texts of PKG-INFO and pyproject.toml in this process, the separate one."""
    pyproject = _parse_toml(texts.get("pyproject.toml") or "", source)
    system = _table(pyproject.get("build-system"))
    pkg_info = texts.get("PKG-INFO") or ""
    project = _table(pyproject.get("project"))
    name, version = _identity(pkg_info, project)
    known = _of_project(project) or requirements_of_pkg_info(pkg_info)
    return SourceMetadata(
        name=name,
        version=version,
        backend=str(system.get("build-backend", _DEFAULT_BACKEND)),
        build_requirements=tuple(map(str, _list(system.get("requires"), _DEFAULT_REQUIRES))),
        backend_path=tuple(map(str, _list(system.get("backend-path")))),
        requires=known[0] if known else None,
        requires_python=known[1] if known else None,
    )


def _of_project(project: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None] | None:
    """Return the requirements of a static project table (PEP 621), or None.

    A key that is absent and not listed as dynamic is empty; a backend may not change it.
    """
    dynamic = _list(project.get("dynamic"))
    if "name" not in project or {"dependencies", "requires-python"} & {*map(str, dynamic)}:
        return None
    python = project.get("requires-python")
    extras = _table(project.get("optional-dependencies"))
    requires = [
        *map(str, _list(project.get("dependencies"))),
        *(_of_extra(str(text), extra) for extra in extras for text in _list(extras[extra])),
    ]
    return tuple(requires), python and str(python)


def _of_extra(text: str, extra: str) -> str:
    requirement, _, marker = text.partition(";")
    both = f"({marker.strip()}) and " if marker.strip() else ""
    return f"{requirement.strip()} ; {both}extra == '{extra}'"


def requirements_of_pkg_info(text: str) -> tuple[tuple[str, ...], str | None] | None:
    """Return the requirements in an sdist's PKG-INFO if a wheel must have the same (PEP 643)."""
    headers = HeaderParser().parsestr(text)
    try:
        static = Version(str(headers["Metadata-Version"])) >= Version("2.2")
    except ValueError:
        return None
    dynamic = {str(field).strip().lower() for field in headers.get_all("Dynamic") or ()}
    if not static or dynamic & {"requires-dist", "requires-python"}:
        return None
    return requirements_of_metadata(text)


def requirements_of_metadata(text: str) -> tuple[tuple[str, ...], str | None]:
    """Return Requires-Dist and Requires-Python of a wheel's METADATA."""
    headers = HeaderParser().parsestr(text)
    python = headers["Requires-Python"]
    return tuple(map(str, headers.get_all("Requires-Dist") or ())), python and str(python)


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object, default: Sequence[str] = ()) -> Sequence[object]:
    return value if isinstance(value, list) else default


def _identity(pkg_info: str, project: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return name and version, None where not valid: a file is called after both."""
    headers = HeaderParser().parsestr(pkg_info)
    name = str(project.get("name") or headers["Name"] or "")
    known = name if is_normalized_name(canonicalize_name(name)) else None
    try:
        return known, str(Version(str(project.get("version") or headers["Version"])))
    except ValueError:  # InvalidVersion, or a number of more digits than Python reads
        return known, None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise ConfigError if a file cannot be read as a source."""
    try:
        yield
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, ValueError) as problem:
        raise unreadable(path, problem) from None


def source_files(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each file, by its path below the topmost folder, and a way to read it.

    A text that is too long for a source's own files is read as empty.
    """
    if path.is_dir():
        return _files_of_tree(path)
    return _files_of_zip(path) if zipfile.is_zipfile(path) else _files_of_tar(path)


def _files_of_tree(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    for count, (folder, folders, files) in enumerate(os.walk(path)):
        if count > MAX_MEMBERS:
            raise ValueError("it contains too many folders for a source")
        folders[:] = sorted(each for each in folders if each == ".cargo" or each[0] != ".")
        for name in files:
            file = Path(folder, name)
            yield str(file.relative_to(path)), partial(_text_of, file)


def _text_of(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > MAX_TEXT:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _files_of_zip(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist()[:MAX_MEMBERS]:
            yield _below(member.filename), partial(_zipped_text, archive, member)


def _zipped_text(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    fits = member.file_size <= MAX_TEXT
    return archive.read(member).decode("utf-8", "replace") if fits else ""


def _files_of_tar(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    size = 0
    with tarfile.open(path, "r:*") as tar:
        for count, member in enumerate(tar):
            size += member.size
            if count > MAX_MEMBERS or size > MAX_BYTES:
                raise ValueError("it contains too many files for a source")
            if member.isfile():
                yield _below(member.name), partial(_member_text, tar, member)


def _member_text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = tar.extractfile(member) if member.size <= MAX_TEXT else None
    return file.read().decode("utf-8", "replace") if file else ""


def _below(member: str) -> str:
    name = member.removeprefix("./")
    return name.partition("/")[2] or name


def loads(text: str) -> dict[str, Any]:
    """Return the content of TOML; raise ValueError for other text and endless numbers."""
    if LONG_NUMBER.search(text):  # Python reads none of 4,300 digits, and makes no float of 400
        raise ValueError("it has a number of hundreds of digits")
    return tomllib.loads(text)


def _parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the content of a pyproject.toml; raise ConfigError if it is not TOML."""
    try:
        if any(len(line) > _MAX_LINE for line in text.splitlines()):
            raise ValueError(f"it has a line of more than {_MAX_LINE} characters")
        return loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"The pyproject.toml of {source} is not valid TOML: {problem}.", "Correct it."
        ) from None
