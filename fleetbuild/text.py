"""Numbers as one would say them, and as they compare."""

from __future__ import annotations

import re


def count(number: int, noun: str) -> str:
    """1 node, 2 nodes, 3 canaries."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"


def version_key(version: str) -> tuple[int, ...]:
    """A key that sorts versions as numbers: 2.4, 2.28, 550.54.15; text without any is first."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version, re.ASCII))
