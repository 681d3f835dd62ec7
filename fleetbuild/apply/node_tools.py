"""Programs of the controller that nodes run.

In: a node's facts. Out: the uv that a node gets, beside its releases, to install wheels with.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

from fleetbuild.files import sha256_of
from fleetbuild.models import Facts
from fleetbuild.plan.resolve.uv import uv_binary


def uv_for(facts: Facts) -> dict[str, str]:
    """Return path, file and sha256 of the uv for this node; empty if the controller has none.

    The controller's own runs on each node of its architecture with glibc. pip serves the others.
    """
    glibc = facts.libc is not None and facts.libc.family == "glibc"
    return _own_uv() if glibc and facts.arch == platform.machine() else {}


@cache
def _own_uv() -> dict[str, str]:
    path = uv_binary()
    return {"path": path, "file": "uv", "sha256": sha256_of(Path(path))}
