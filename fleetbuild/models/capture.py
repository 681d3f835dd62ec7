"""Captures: the raw text that a probe reads from a node, or the reason why it failed."""

from __future__ import annotations

from collections.abc import Mapping

from fleetbuild.models._base import Frozen

# Section ("uname", "cpuinfo", …) -> the text that the node printed. A missing section is unknown.
Capture = Mapping[str, str]


class Unreachable(Frozen):
    """A node that could not be probed. `reason` says why, `fix` what to do about it."""

    reason: str
    fix: str = ""
