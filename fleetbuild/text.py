"""Numbers in sentences, and versions that sort as numbers."""

from __future__ import annotations

import re


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 node, 2 nodes, 3 canaries."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"


def version_key(version: str) -> tuple[int, ...]:
    """Return a key that sorts versions as numbers: 2.4 before 2.28, text without digits first."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version, re.ASCII))
