"""The program that a node installs wheels with: uv, or for small ones the library `installer`.

In: the facts of a node, and what it installs. Out: the file to send, and its hash. Packed, uv has
half its size, and a node unpacks it in 0.2 s of CPU. The library has 20 kB.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import platform
import stat
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from packaging.specifiers import SpecifierSet

from fleetbuild.files import is_own, make_cache, own_cache, remove_old, replace_file, sha256_of
from fleetbuild.models import Facts
from fleetbuild.programs import bundled_uv

Program = dict[str, str | int]  # path, file, sha256 and size; see InstallSpec.installer
_DAYS = 30  # without use, after which the packed file of another version is removed
_SMALL = 16_000_000  # bytes of wheels that are less than a packed uv


def installer_for(facts: Facts, python: str, size: int) -> Program:
    """Return the program that this node is to install by; empty if it has to be pip.

    `python` is the release's, such as cp311, and `size` the bytes of its wheels. The controller's
    own uv runs on each node of its architecture with glibc.
    """
    glibc = facts.libc is not None and facts.libc.family == "glibc"
    runs_uv = glibc and facts.arch == platform.machine()
    minor = python.removeprefix("cp3").removesuffix("t")
    runs_library = minor.isdigit() and f"3.{minor}" in _pythons()
    library = own_library() if runs_library and (size < _SMALL or not runs_uv) else {}
    return library or (own_uv() if runs_uv else {})


@cache
def own_uv() -> Program:
    """Return fleetbuild's own uv, packed: one of a distribution may need a newer libc."""
    program = Path(bundled_uv())
    path, sha256 = _kept(
        "uv", sha256_of(program), ".gz", lambda: gzip.compress(program.read_bytes(), 1, mtime=0)
    )
    return _described(path, "uv.gz", sha256)


@cache
def own_library() -> Program:
    """Return unpack_wheels.py with the library, as one file."""
    content = _library()
    path, sha256 = _kept("installer", hashlib.sha256(content).hexdigest(), ".pyz", lambda: content)
    return _described(path, "installer.pyz", sha256)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="fleetbuild-")


def _described(path: Path, file: str, sha256: str) -> Program:
    return {"path": str(path), "file": file, "sha256": sha256, "size": path.stat().st_size}


@cache
def _pythons() -> SpecifierSet:
    """Return which versions of Python run the library."""
    return SpecifierSet(distribution("installer").metadata["Requires-Python"] or "")


def _library() -> bytes:
    """Return an archive that Python runs, the same bytes for the same versions."""
    sources = {"__main__.py": Path(__file__).with_name("unpack_wheels.py")}
    # By its distribution: with `python -m`, the working directory may hold an installer.py.
    folder = Path(str(distribution("installer").locate_file("installer")))
    for path in sorted(folder.rglob("*.py")):
        sources[f"installer/{path.relative_to(folder)}"] = path
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sources.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _kept(name: str, wanted: str, suffix: str, make: Callable[[], bytes]) -> tuple[Path, str]:
    """Return a file in the user's cache, and its hash; in a folder of this run if that is refused.

    `wanted` is the hash of what it is made of.
    """
    try:
        path = _cached(own_cache(name), wanted, suffix, make)
    except OSError:  # such as in a HOME that is read-only
        path = _written(Path(_own_folder().name), wanted, suffix, make())
    return path, _hash_in_name(path)


def _cached(folder: Path, wanted: str, suffix: str, make: Callable[[], bytes]) -> Path:
    """Return the file in a folder of the cache; raise if the cache is not usable."""
    above = filter(Path.exists, folder.resolve().parents)
    if not all(map(_stays, above)):  # such as a user's home, for root: root's folders stay out
        raise PermissionError(f"Another user can replace {folder}.")
    make_cache(folder)
    if not is_own(folder):
        raise PermissionError(f"Another user can replace {folder}.")
    path = next(filter(_is_whole, folder.glob(f"{wanted}.*{suffix}")), None)
    if path is None:
        path = _written(folder, wanted, suffix, make())
        remove_old(folder.iterdir(), _DAYS)
    with contextlib.suppress(OSError):  # of a read-only disk
        path.touch()  # so that no other version removes a file that is in use
    return path


def _written(folder: Path, wanted: str, suffix: str, content: bytes) -> Path:
    path = folder / f"{wanted}.{hashlib.sha256(content).hexdigest()}{suffix}"
    replace_file(str(path), content)
    return path


def _stays(folder: Path) -> bool:
    """Return whether no other user can rename folders in this one."""
    about = folder.stat()
    shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
    return about.st_uid in (0, os.geteuid()) and not shared


def _hash_in_name(path: Path) -> str:
    return path.name.split(".")[1]


def _is_whole(path: Path) -> bool:
    """Return whether no disk has damaged the file, and no crash has cut it short."""
    try:
        return sha256_of(path) == _hash_in_name(path)
    except OSError:
        return False
