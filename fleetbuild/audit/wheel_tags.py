"""Wheel tags: which a target supports, and which wheel it prefers.

In: Python, architecture and libc of a target. Out: supported tags with ranks; the best file name.
The store uses them to choose a wheel of an index, the audit to check a built wheel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags

from fleetbuild.models import TargetLibc

_ALIASES = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_NAME = re.compile(r"[^-]+-[^-]+(?:-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl")
_LONGEST = 255  # characters of a file's name
_OLDEST = {"x86_64": 5}  # glibc 2.5; manylinux for other architectures starts at 2.17


@lru_cache(maxsize=64)
def supported_tags(python: str, arch: str, libc: TargetLibc) -> dict[Tag, int]:
    """Return the tags that a target supports, with their ranks (0 is the best)."""
    digits = re.match(r"cp(\d)(\d+)", python)  # cp36m and cp313t are ABIs of cp36 and cp313
    if digits is None:
        return {}
    version = (int(digits[1]), int(digits[2]))
    platforms = list(_platforms(arch, libc))
    tags = [
        *cpython_tags(version, abis=[python], platforms=platforms),
        *compatible_tags(version, digits[0], platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def best_wheel(names: Iterable[str], python: str, arch: str, libc: TargetLibc) -> str | None:
    """Return the file name that the target prefers, or None if it supports none of them."""
    supported = supported_tags(python, arch, libc)
    ranked = [(rank, name) for name in names if (rank := _rank(name, supported)) is not None]
    return min(ranked)[1] if ranked else None


def _rank(name: str, supported: dict[Tag, int]) -> int | None:
    """Return the rank of a file's best tag. Its parts may multiply to more than memory holds."""
    match = _NAME.fullmatch(name.lower())
    if match is None or len(name) > _LONGEST:
        return None
    pythons, abis, platforms = (part.split(".") for part in match.groups())
    ranks = (
        rank
        for tag, rank in supported.items()
        if tag.interpreter in pythons and tag.abi in abis and tag.platform in platforms
    )
    return min(ranks, default=None)


def _platforms(arch: str, libc: TargetLibc) -> Iterator[str]:
    major, minor = (*(int(part) for part in libc.floor.split(".")[:2]), 0)[:2]
    if libc.family == "musl":
        yield from (f"musllinux_{major}_{step}_{arch}" for step in range(minor, -1, -1))
    else:
        for step in range(minor, _OLDEST.get(arch, 17) - 1, -1):
            yield f"manylinux_{major}_{step}_{arch}"
            if alias := _ALIASES.get((major, step)):
                yield f"{alias}_{arch}"
    yield f"linux_{arch}"
