"""Talk to a Kubernetes API server: read Nodes and set their labels.

In: a kubeconfig and a context. Out: a `Client`, Nodes, outcomes of labelling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetbuild.models import Cluster

if TYPE_CHECKING:
    from fleetbuild.extensions.kubernetes.api.client import Client


def connect(cluster: Cluster) -> Client:
    """Return a client, to be closed; no request is made yet."""
    from fleetbuild.extensions.kubernetes.api.client import Client
    from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access

    return Client(find_access(cluster.kubeconfig, cluster.context))
