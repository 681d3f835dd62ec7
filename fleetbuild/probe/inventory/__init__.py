"""Read an Ansible inventory into nodes.

In: an inventory source, a limit and secrets. Out: an `Inventory`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import fleetbuild
from fleetbuild.ansible import (
    Listing,
    Secrets,
    list_inventory,
    needs_rendering,
    read_once,
    render,
    sweep,
    untried_core,
)
from fleetbuild.errors import UsageError
from fleetbuild.foreign_settings import refuse_foreign_folder, refuse_foreign_home

# "Without", "and" and "matching", without what.
_NOTHING = re.compile("[!&]?~|[!&]")


def read_inventory(
    source: str | Path, *, limit: str | None = None, secrets: Secrets | None = None
) -> fleetbuild.Inventory:
    """Return the nodes of an inventory as Ansible sees them, with rendered logins."""
    source, secrets = str(source), secrets or Secrets()
    _refuse_empty(source, limit)
    # Before Ansible starts: it runs plugins that its settings name, and an inventory's program.
    refuse_foreign_home()
    refuse_foreign_folder(source)
    killed = sweep()
    listing = read_once(source, limit, secrets, partial(_rendered, source, limit, secrets))
    from fleetbuild.models import Inventory  # noqa: PLC0415
    from fleetbuild.probe.inventory.nodes import node_of  # noqa: PLC0415
    from fleetbuild.this_machine import local_hosts  # noqa: PLC0415

    local = {host: {"ansible_connection": "local"} for host in local_hosts(source)}
    return Inventory(
        source=source,
        limit=limit,
        nodes=tuple(
            node_of(
                host,
                {**local.get(host, {}), **own},
                groups=listing.groups[host],
                settings=listing.settings,
                secrets=secrets,
            )
            for host, own in listing.hosts.items()
        ),
        warnings=(*filter(None, (untried_core(),)), *listing.warnings, *killed),
    )


def _rendered(source: str, limit: str | None, secrets: Secrets) -> Listing:
    """Let Ansible read the inventory, with the rendered values of the variables that we use."""
    # Ansible is slow to start, so it starts first and the modules for nodes and the probe are
    # imported meanwhile. Not a daemon thread: exiting while an extension module loads may crash.
    loading = threading.Thread(target=_load)
    listing = list_inventory(source, limit=limit, secrets=secrets, on_start=loading.start)
    wanted = {host: some for host, own in listing.hosts.items() if (some := _unrendered(own))}
    rendered = render(source, wanted, secrets=secrets)
    hosts = {host: {**own, **rendered.get(host, {})} for host, own in listing.hosts.items()}
    return replace(listing, hosts=hosts)


def _refuse_empty(source: str, limit: str | None) -> None:
    """Refuse an empty source or limit: Ansible takes every inventory here, or all hosts."""
    if not source.strip():
        raise UsageError(
            "The inventory is empty: it names no file, directory or host.",
            "Name one. A list of hosts ends with a comma: host1,host2,",
        )
    if limit is None:
        return
    parts = [part.strip() for part in re.split("[,:]", limit)]
    if not any(map(_has_pattern, parts)) or any(_NOTHING.fullmatch(part) for part in parts):
        raise UsageError(
            f"--limit {limit!r} is empty, or a part of it is: it names no nodes.",
            "Name hosts or groups. For all nodes, leave out --limit.",
        )


def _has_pattern(part: str) -> bool:
    if part.startswith("@"):
        try:
            part = Path(part[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return True  # Ansible's error names the file
    return bool(part.strip(" ,:\n\r\t"))


def _load() -> None:
    for module in ("fleetbuild.probe.inventory.nodes", "fleetbuild.probe.probing", "fabric"):
        import_module(module)


def _unrendered(own: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own.items() if _is_ours(name) and needs_rendering(value)}


def _is_ours(name: str) -> bool:
    return name.startswith(("ansible_", "fleetbuild_")) or name == "kubernetes_node"
