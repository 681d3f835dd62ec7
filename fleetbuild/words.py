"""Numbers as one would say them."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """1 node, 2 nodes, 3 canaries."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("ry") else f"{number} {noun}s"
