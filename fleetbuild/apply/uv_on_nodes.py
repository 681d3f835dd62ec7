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
import shutil
import zlib
from functools import cache
from io import BytesIO
from pathlib import Path
from secrets import token_hex

from fleetbuild.files import is_own, own_cache, remove_old, sha256_of
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
    if not is_own(folder):
        raise PermissionError(f"Another user can write to {folder}.")
    wanted = sha256_of(program)
    path = folder / f"{wanted}.gz"
    sha256 = _hash_if_whole(path, wanted)
    if not sha256:
        _pack(program, path)
        remove_old(folder.glob("*.gz"), _DAYS)
        sha256 = _hash_if_whole(path, wanted)
        if not sha256:
            raise OSError(f"{path} does not hold {program}.")
    with contextlib.suppress(OSError):  # of a read-only disk
        os.utime(path)  # so that no other version removes a file that is in use
    return path, sha256


def _hash_if_whole(path: Path, wanted: str) -> str:
    """Return the hash of a packed file if it holds the program of this hash, else "".

    Nodes run the packed program as root. Who can rename a folder above the cache can put
    another file there at any time, and a disk can damage one.
    """
    try:
        content = path.read_bytes()
        with gzip.open(BytesIO(content)) as unpacked:
            found = hashlib.file_digest(unpacked, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error):
        return ""
    return hashlib.sha256(content).hexdigest() if found == wanted else ""


def _pack(program: Path, path: Path) -> None:
    fresh = path.with_name(f".{token_hex(4)}.gz")
    try:
        with program.open("rb") as source, fresh.open("xb") as file:
            # Without a name and a time, so that all controllers send the same bytes.
            with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
                shutil.copyfileobj(source, packed, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
