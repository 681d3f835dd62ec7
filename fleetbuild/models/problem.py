"""A problem as people read it: why something cannot be done, and what to do about it.

In: two whole sentences. Out: a `Problem`, which plans, results and errors take apart.
"""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """Why something cannot be done, and the fix: each a whole sentence, the fix may be empty."""

    reason: str
    fix: str = ""
