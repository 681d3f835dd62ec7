"""The exception that ends the assessment of a node."""

from __future__ import annotations


class Blocked(Exception):
    """A node cannot be planned for; `reason` and `fix` are sentences."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix
