"""Read a cluster as a fleet: its Nodes as an inventory, their labels and features as facts.

In: a client and the image for builds. Out: an `Inventory` and facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetbuild.errors import InventoryError
from fleetbuild.extensions.kubernetes.api import connect
from fleetbuild.extensions.kubernetes.api.client import Client, path_of
from fleetbuild.extensions.kubernetes.api.errors import NoResponse, Refusal, as_error, forbidden
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.config import KEY, Kubernetes
from fleetbuild.extensions.kubernetes.jobs.builder_image import BuilderImage, builder_image
from fleetbuild.extensions.kubernetes.labels.devices import devices_by_node
from fleetbuild.extensions.kubernetes.labels.node_facts import by_node, facts_of_node
from fleetbuild.models import Cluster, Config, Facts, Inventory, Login, Node
from fleetbuild.models.node import NO_SSH

_FEATURES = ("apis", "nfd.k8s-sigs.io", "v1alpha1", "nodefeatures")
_SLICES = ("apis", "resource.k8s.io", "v1", "resourceslices")


def read_fleet_of(cluster: Cluster, config: Config) -> tuple[Inventory, dict[str, Facts], Config]:
    """Return a cluster's Nodes, their facts, and the configuration in which they have their names.

    Python and C library come from `build.image`.
    """
    image = builder_image(config.build, config.python)
    with connect(cluster) as client:
        inventory, facts = read_fleet(client, image)
    names = {"node_name": "{{ inventory_hostname }}"}
    section = config.section(Kubernetes).model_copy(update=names)
    return inventory, facts, config.with_section(KEY, section)


def read_fleet(client: Client, image: BuilderImage) -> tuple[Inventory, dict[str, Facts]]:
    """Return the Nodes as an inventory, and their facts keyed by name."""
    nodes = list_nodes(client)
    if not nodes:
        raise InventoryError(
            f"{client.access.where} has no Nodes.", "Name another cluster with --context."
        )
    features, warnings = _listed(client, _FEATURES)
    slices, more = _listed(client, _SLICES)
    features_of, devices = by_node(features), devices_by_node(slices)
    facts = {
        name: facts_of_node(
            nodes[name].document, features_of.get(name, ()), image, devices.get(name)
        )
        for name in sorted(nodes)
    }
    inventory = Inventory(
        source=f"cluster:{client.access.context}",
        nodes=tuple(
            Node(name=name, login=Login(host=name, connection=NO_SSH)) for name in sorted(nodes)
        ),
        warnings=(*warnings, *more),
    )
    return inventory, facts


def _listed(
    client: Client, path: tuple[str, ...]
) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """Return all objects of a kind, none if the cluster does not have the kind.

    If they may not be listed, there is a warning: the plan can do without them.
    """
    what = f"{path[1]}/{path[3]}"
    try:
        return list(client.all(path_of(*path))), ()
    except NoResponse as problem:
        raise as_error(problem, client.access, "list", what) from None
    except Refusal as problem:
        if problem.code == 404:
            return [], ()
        if problem.code != 403:
            raise as_error(problem, client.access, "list", what) from None
        return [], (" ".join(forbidden(client.access, "list", what, problem.message)),)
