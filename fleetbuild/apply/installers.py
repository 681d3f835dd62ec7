"""The program that a node installs wheels with: the controller's uv, where the node runs it.

In: the facts of a node. Out: the file to send, and its hash. Packed, uv has half its size, and a
node unpacks it in 0.2 s of CPU, once. Without it, the node's pip installs.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
from functools import cache
from pathlib import Path

from fleetbuild.files import make_folder, replace_file, sha256_of
from fleetbuild.models import Facts
from fleetbuild.programs import bundled_uv

Program = dict[str, str | int]  # path, file, sha256 and size; see InstallSpec.installer


def installer_for(facts: Facts, folder: Path) -> Program:
    """Return the program that this node is to install by; empty if it has to be pip.

    The controller's own uv runs on each node of its architecture with glibc. `folder` is where it
    is kept packed.
    """
    glibc = facts.libc is not None and facts.libc.family == "glibc"
    return own_uv(folder) if glibc and facts.arch == platform.machine() else {}


@cache
def own_uv(folder: Path) -> Program:
    """Return fleetbuild's own uv, packed: one of a distribution may need a newer libc."""
    program = Path(bundled_uv())
    wanted = sha256_of(program)
    packed = folder.glob(f"{wanted}.*.gz")
    path = next((path for path in packed if sha256_of(path) == path.name.split(".")[1]), None)
    if path is None:
        for old in folder.glob("*.gz"):  # of another version, or damaged
            old.unlink()
        content = gzip.compress(program.read_bytes(), 1, mtime=0)
        path = folder / f"{wanted}.{hashlib.sha256(content).hexdigest()}.gz"
        make_folder(folder)
        replace_file(str(path), content)
    sha256, size = path.name.split(".")[1], path.stat().st_size
    return {"path": str(path), "file": "uv.gz", "sha256": sha256, "size": size}
