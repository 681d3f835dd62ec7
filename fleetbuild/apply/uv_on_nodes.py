"""The uv that nodes install wheels with: the controller's own, packed once for each version.

In: the facts of a node. Out: the file to send, and its hash. Packed it has half its size, and a
node unpacks it in 0.2 s of CPU.
"""

from __future__ import annotations

import gzip
import os
import platform
import shutil
from functools import cache
from pathlib import Path
from secrets import token_hex

from fleetbuild.files import is_own, own_cache, remove_old, sha256_of
from fleetbuild.models import Facts
from fleetbuild.plan.resolve.uv import uv_binary

_DAYS = 30  # after which the packed uv of another version is removed


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
        path, file = _packed(program), "uv.gz"
    except OSError:
        path, file = program, "uv"
    return {"path": str(path), "file": file, "sha256": sha256_of(path)}


def _packed(program: Path) -> Path:
    """Return the packed program in the user's cache; raise if another user could change it."""
    folder = own_cache("uv")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own(folder):
        raise PermissionError(f"Another user can write to {folder}.")
    path = folder / f"{sha256_of(program)}.gz"
    if not path.is_file():
        fresh = folder / f".{token_hex(4)}"
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
        remove_old(folder.glob("*.gz"), _DAYS)
    return path
