"""Read an Ansible inventory into nodes.

In: an inventory source, a limit and secrets. Out: an `Inventory`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetbuild.ansible import Secrets, list_inventory, needs_rendering, render

if TYPE_CHECKING:
    from fleetbuild.models import Inventory


def read_inventory(
    source: str | Path, *, limit: str | None = None, secrets: Secrets | None = None
) -> Inventory:
    """Return the nodes of an inventory as Ansible sees them, with rendered logins."""
    # Ansible is slow to start, so it starts first and the modules for nodes and the probe are
    # imported meanwhile. Not a daemon thread: exiting while an extension module loads may crash.
    loading = threading.Thread(target=_load)
    listing = list_inventory(str(source), limit=limit, secrets=secrets, on_start=loading.start)
    wanted = {host: names for host, own in listing.hosts.items() if (names := _unrendered(own))}
    rendered = render(str(source), wanted, secrets=secrets)
    from fleetbuild.inventory.nodes import node_of  # noqa: PLC0415
    from fleetbuild.models import Inventory  # noqa: PLC0415

    return Inventory(
        source=str(source),
        limit=limit,
        nodes=tuple(
            node_of(
                host,
                {**own, **rendered.get(host, {})},
                groups=listing.groups[host],
                settings=listing.settings,
                secrets=secrets or Secrets(),
            )
            for host, own in listing.hosts.items()
        ),
        warnings=listing.warnings,
    )


def _load() -> None:
    for module in ("fleetbuild.inventory.nodes", "fleetbuild.probe", "fabric"):
        import_module(module)


def _unrendered(own: Mapping[str, Any]) -> list[str]:
    return [name for name, value in own.items() if _is_ours(name) and needs_rendering(value)]


def _is_ours(name: str) -> bool:
    return name.startswith(("ansible_", "fleetbuild_")) or name == "kubernetes_node"
