"""The program that a node installs wheels with: the controller's uv, where the node runs it.

In: the facts of a node. Out: the file to send, and its hash. Packed, uv has half its size, and a
node unpacks it in 0.2 s of CPU, once. Without it, the node's pip installs.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from fleetbuild.files import make_cache, own_cache, remove_old, replace_file, sha256_of
from fleetbuild.models import Facts
from fleetbuild.programs import bundled_uv

Program = dict[str, str | int]  # path, file, sha256 and size; see InstallSpec.installer
_DAYS = 30  # without use, after which the packed file of another version is removed


def installer_for(facts: Facts) -> Program:
    """Return the program that this node is to install by; empty if it has to be pip.

    The controller's own uv runs on each node of its architecture with glibc.
    """
    glibc = facts.libc is not None and facts.libc.family == "glibc"
    return own_uv() if glibc and facts.arch == platform.machine() else {}


@cache
def own_uv() -> Program:
    """Return fleetbuild's own uv, packed: one of a distribution may need a newer libc."""
    program = Path(bundled_uv())
    path = _kept(sha256_of(program), lambda: gzip.compress(program.read_bytes(), 1, mtime=0))
    size = path.stat().st_size
    return {"path": str(path), "file": "uv.gz", "sha256": _hash_in_name(path), "size": size}


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="fleetbuild-")


def _kept(wanted: str, pack: Callable[[], bytes]) -> Path:
    """Return the packed file in the user's cache; in a folder of this run if that is refused.

    `wanted` is the hash of what it is made of.
    """
    try:
        return _cached(own_cache("uv"), wanted, pack)
    except OSError:  # such as in a HOME that is read-only
        return _written(Path(_own_folder().name), wanted, pack())


def _cached(folder: Path, wanted: str, pack: Callable[[], bytes]) -> Path:
    """Return the file in a folder of the cache; raise if the cache is not usable."""
    make_cache(folder)
    path = next(filter(_is_whole, folder.glob(f"{wanted}.*.gz")), None)
    if path is None:
        path = _written(folder, wanted, pack())
        remove_old(folder.iterdir(), _DAYS)
    with contextlib.suppress(OSError):  # of a read-only disk
        path.touch()  # so that no other version removes a file that is in use
    return path


def _written(folder: Path, wanted: str, content: bytes) -> Path:
    path = folder / f"{wanted}.{hashlib.sha256(content).hexdigest()}.gz"
    replace_file(str(path), content)
    return path


def _hash_in_name(path: Path) -> str:
    return path.name.split(".")[1]


def _is_whole(path: Path) -> bool:
    """Return whether no disk has damaged the file, and no crash has cut it short."""
    try:
        return sha256_of(path) == _hash_in_name(path)
    except OSError:
        return False
