"""Talks to a Kubernetes API server: labels on nodes, and what nodes are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetbuild.cluster.client import Client


@dataclass(frozen=True)
class Cluster:
    """Which cluster is meant: as kubectl finds it, where nothing is said."""

    kubeconfig: Path | None = None
    context: str | None = None

    def connect(self) -> Client:
        """A client, to be closed; nothing is asked yet."""
        from fleetbuild.cluster.client import Client  # noqa: PLC0415 few commands ask a cluster
        from fleetbuild.cluster.kubeconfig import find_access  # noqa: PLC0415

        return Client(find_access(self.kubeconfig, self.context))
