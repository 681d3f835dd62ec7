"""The uv that nodes install wheels with: the controller's own, packed once for each version.

In: the facts of a node. Out: the file to send, and its hash. Packed it has half its size, and a
node unpacks it in 0.2 s of CPU.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import platform
import stat
from functools import cache
from pathlib import Path

from fleetbuild.files import is_own, own_cache, remove_old, replace_file, sha256_of
from fleetbuild.models import Facts
from fleetbuild.plan.resolve.uv import uv_binary

_DAYS = 30  # without use, after which the packed uv of another version is removed


def uv_for(facts: Facts) -> dict[str, str]:
    """Return path, file and sha256 of the uv for this node; empty if the controller has none.

    The controller's own runs on each node of its architecture with glibc. pip serves the others.
    """
    glibc = facts.libc is not None and facts.libc.family == "glibc"
    return own_uv() if glibc and facts.arch == platform.machine() else {}


@cache
def own_uv() -> dict[str, str]:
    """Return path, file and sha256 of the controller's uv; as it is if the cache is not usable."""
    program = Path(uv_binary())
    try:
        path, sha256 = _packed(program)
    except OSError:
        return {"path": str(program), "file": "uv", "sha256": sha256_of(program)}
    return {"path": str(path), "file": "uv.gz", "sha256": sha256}


def _packed(program: Path) -> tuple[Path, str]:
    """Return the packed program in the user's cache, and its hash; raise if it is not usable."""
    folder = own_cache("uv")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (is_own(folder) and all(map(_stays, folder.resolve().parents))):
        raise PermissionError(f"Another user can replace {folder}.")
    wanted = sha256_of(program)
    path = next(filter(_is_whole, folder.glob(f"{wanted}.*.gz")), None)
    if path is None:
        path = _pack(program, folder, wanted)
        remove_old(folder.iterdir(), _DAYS)
    with contextlib.suppress(OSError):  # of a read-only disk
        path.touch()  # so that no other version removes a file that is in use
    return path, _hash_in_name(path)


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


def _pack(program: Path, folder: Path, wanted: str) -> Path:
    content = gzip.compress(program.read_bytes(), compresslevel=1, mtime=0)
    path = folder / f"{wanted}.{hashlib.sha256(content).hexdigest()}.gz"
    replace_file(str(path), content)
    return path
