"""Lock files, and the files that they name: uv.lock as uv exports it, and pylock.toml (PEP 751).

In: a path, or a package of a lock. Out: a `Lock`; the wheel of a package for a machine, by its
hash.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from os import environ
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.pylock import Pylock, PylockValidationError
from packaging.utils import canonicalize_name

from fleetbuild.audit.limited_process import SECONDS, read_apart, seconds_for, too_much
from fleetbuild.audit.wheel_tags import best_wheel
from fleetbuild.errors import ConfigError
from fleetbuild.files import read_input, sha256_of
from fleetbuild.models import LockedFile, TargetLibc
from fleetbuild.programs import run_program, uv_program
from fleetbuild.store.sources import loads
from fleetbuild.text import clean

_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII)
_MOST_BYTES = 16 << 20  # a lock file of thousands of packages has a few megabytes
_DEADLINE = 60
_EXPORT = (
    "export", "--frozen", "--offline", "--no-config", "--no-cache", "--no-python-downloads",
    "--format", "pylock.toml", "--no-emit-project", "--no-header", "--color", "never", "--quiet",
)  # fmt: skip


class Lock(NamedTuple):
    """The packages of a lock, as a pylock.toml lists them."""

    path: Path
    packages: list[dict[str, Any]]
    is_uv: bool  # a uv.lock: the pyproject.toml beside it names the direct dependencies


def read_lock(path: Path, options: Iterable[str] = ("--no-default-groups",)) -> Lock:
    """Return the content of a uv.lock or pylock.toml. `options` go to `uv export`."""
    document = read_toml(path)
    is_uv = isinstance(document.get("version"), int)
    if is_uv:
        document = _export(path, options)
    elif "lock-version" not in document:
        raise ConfigError(
            f"{path} is neither a uv.lock nor a pylock.toml.",
            "Name one of them, or a requirements file with -r.",
        )
    try:
        Pylock.from_dict(document)
    except PylockValidationError as problem:
        reason = clean(str(problem), limit=300)
        raise ConfigError(f"{path} is not a valid lock: {reason}.", "Lock it again.") from None
    return Lock(path, document["packages"], is_uv)


def _export(path: Path, options: Iterable[str]) -> dict[str, Any]:
    """Return a uv.lock as uv exports it, from a copy of the lock and its project.

    Both lie below a folder in which uv's search for settings and for a workspace ends: in /tmp,
    any user may have put some.
    """
    project = path.with_name("pyproject.toml")
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as outer:
        Path(outer, "pyproject.toml").write_text("[tool.uv]\nmanaged = false\n")
        folder = Path(outer, "project")
        folder.mkdir()
        (folder / "uv.lock").write_text(read_text(path))
        (folder / "pyproject.toml").write_text(read_text(project))
        done = run_program(
            [uv_program(), *_EXPORT, "--python", sys.executable, *options],
            within=_DEADLINE,
            cwd=folder,
            env={name: value for name, value in environ.items() if not name.startswith("UV_")},
        )
    if done.returncode:
        raise ConfigError(
            f"{path} cannot be exported by uv: {clean(done.stderr, limit=300)}.",
            "Lock it again, or export what you want with uv export --format pylock.toml"
            " -o pylock.toml, and name that file.",
        )
    return tomllib.loads(done.stdout)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, without dates."""
    found: dict[str, Any] | None = read_apart(toml_here, path)
    if found is None:
        why = too_much(seconds_for(path.stat().st_size, SECONDS))
        raise ConfigError(f"{path} {why}.", "Name a lock or project that a tool wrote.")
    return found


def toml_here(path: Path) -> dict[str, Any]:
    """Read a TOML file in this process, the separate one: a key of many parts takes gigabytes."""
    text = read_text(path)
    try:
        return dict(json.loads(json.dumps(loads(text), default=lambda _date: None)))
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}.", "Correct the file.") from None


def read_text(path: Path) -> str:
    """Return the text of a file; raise ConfigError for a device, a pipe and a file of many MB."""
    try:
        return read_input(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist.", "Name an existing file.") from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.", "Name a readable file.") from None


def locked_wheel(
    package: dict[str, Any], python: str, arch: str, libc: TargetLibc, folder: Path
) -> LockedFile | None:
    """Return the best wheel of a locked package for a machine; None without one with a hash."""
    files = {_file_name(wheel): wheel for wheel in package.get("wheels", ())}
    best = best_wheel(files, python, arch, libc)
    return locked_file(package, files[best], folder) if best else None


def locked_file(package: dict[str, Any], file: dict[str, Any], folder: Path) -> LockedFile | None:
    """Return a file of a locked package; None if its hash is unknown.

    Paths begin in `folder`, where the lock is.
    """
    url = str(file.get("url") or (folder / str(file.get("path"))).resolve().as_uri())
    path = Path(unquote(urlsplit(url).path)) if url.startswith("file://") else None
    match = _SHA256.fullmatch(str(file.get("hashes", {}).get("sha256")))
    on_disk = path is not None and path.is_file()
    if match is None and not on_disk:
        return None
    size = path.stat().st_size if path and on_disk else file.get("size")
    return LockedFile(
        name=canonicalize_name(str(package["name"])),
        version=str(package.get("version", "")),
        file=_file_name(file),
        sha256=match[1] if match else sha256_of(Path(path or "")),
        url=url.split("#", maxsplit=1)[0],
        size=size if isinstance(size, int) and size >= 0 else None,
    )


def _file_name(file: dict[str, Any]) -> str:
    address = str(file.get("url") or file.get("path") or "")
    return str(file.get("name") or unquote(urlsplit(address).path).rsplit("/", 1)[-1])
