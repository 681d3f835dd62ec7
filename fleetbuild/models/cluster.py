"""Which cluster a command is about. The core only passes it on to extensions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cluster:
    """The choice of a cluster; by default the one that kubectl uses."""

    kubeconfig: Path | None = None
    context: str | None = None
