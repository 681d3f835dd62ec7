"""The Nodes of a cluster with their labels and the owners of each label.

In: a client. Out: `ClusterNode`s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetbuild.extensions.kubernetes.api.client import Client, path_of
from fleetbuild.extensions.kubernetes.api.errors import NoResponse, Refusal, as_error

NODES = ("api", "v1", "nodes")


@dataclass(frozen=True)
class ClusterNode:
    """A Node as read from the API."""

    name: str
    uid: str
    version: str = ""  # changes with every change of the object
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # label -> managers
    annotations: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def owned(self, manager: str) -> dict[str, str]:
        """Return the labels that a field manager owns, alone or with others."""
        return {key: value for key, value in self.labels.items() if manager in self.owner(key)}

    def owner(self, label: str) -> tuple[str, ...]:
        """Return the field managers of a label."""
        return self.owners.get(label, ())


def list_nodes(client: Client) -> dict[str, ClusterNode]:
    """Return every Node, keyed by name."""
    try:
        return {node.name: node for item in client.all(path_of(*NODES)) if (node := read(item))}
    except (Refusal, NoResponse) as problem:
        raise as_error(problem, client.access, "list", "/nodes") from None


def read(document: Mapping[str, Any]) -> ClusterNode:
    """Return the ClusterNode for a Node's document."""
    metadata = document.get("metadata") or {}
    return ClusterNode(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        labels=dict(metadata.get("labels") or {}),
        owners=_owners(metadata.get("managedFields") or ()),
        annotations=dict(metadata.get("annotations") or {}),
        document=document,
    )


def is_nfd(manager: str) -> bool:
    """Return whether a field manager is Node Feature Discovery."""
    return manager.startswith("nfd")


def owned_by(node: ClusterNode, labels: Collection[str], manager: str) -> dict[str, Any]:
    """Return a Node's managedFields with this manager (and NFD) as the only owner of labels."""
    metadata = node.document.get("metadata") or {}
    entries = []
    for entry in metadata.get("managedFields") or ():
        whose = str(entry.get("manager", "")), entry.get("operation")
        if whose != (manager, "Apply") and not is_nfd(whose[0]):
            entries.append(_without(entry, {f"f:{key}" for key in labels}))
        else:
            entries.append(entry)
    return {"managedFields": entries}


def _without(entry: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    fields = entry.get("fieldsV1") or {}
    metadata = fields.get("f:metadata") or {}
    kept = {key: each for key, each in (metadata.get("f:labels") or {}).items() if key not in keys}
    changed = {**metadata, "f:labels": kept} if "f:labels" in metadata else metadata
    return {**entry, "fieldsV1": {**fields, "f:metadata": changed} if metadata else fields}


def _owners(entries: Any) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for key in fields.get("f:labels") or {}:
            name, manager = key.removeprefix("f:"), str(entry.get("manager", "?"))
            if key != "." and manager not in owners.get(name, ()):
                owners[name] = (*owners.get(name, ()), manager)
    return owners
