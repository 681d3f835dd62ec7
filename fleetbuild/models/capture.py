"""What a probe brings home from a node: raw text, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from fleetbuild.models._base import Frozen

# Section ("uname", "cpuinfo", …) to the text as the node printed it. A missing one is unknown.
Capture = Mapping[str, str]


class Unreachable(Frozen):
    """A node that gave no capture. `reason` is a short sentence, `fix` what to do about it."""

    reason: str
    fix: str = ""
