"""Talk to a Kubernetes API server: read Nodes and set their labels.

In: a kubeconfig and a context. Out: a `Client`, Nodes, outcomes of labelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetbuild.kubernetes.api.client import Client


@dataclass(frozen=True)
class Cluster:
    """The choice of a cluster; by default the one that kubectl uses."""

    kubeconfig: Path | None = None
    context: str | None = None


def connect(cluster: Cluster) -> Client:
    """Return a client, to be closed; no request is made yet."""
    from fleetbuild.kubernetes.api.client import Client  # noqa: PLC0415 few commands ask a cluster
    from fleetbuild.kubernetes.api.kubeconfig import find_access  # noqa: PLC0415

    return Client(find_access(cluster.kubeconfig, cluster.context))
