"""The report of `fleetbuild status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleetbuild.cli.show.text import ago, clean, fold, troubles
from fleetbuild.models import NodeStatus
from fleetbuild.text import count

if TYPE_CHECKING:
    from rich.table import Table

# In a larger fleet, nodes in the same state share a row.
MANY = 40
STYLES = {
    "missing": "red",
    "damaged": "red",
    "revoked": "red",
    "expired": "yellow",
    "different": "yellow",
    "changed": "yellow",
}


def status_document(nodes: Mapping[str, NodeStatus]) -> dict[str, Any]:
    """Return the document of `status --json`."""
    return {
        "format_version": "1.0",
        "nodes": {name: node.model_dump(mode="json") for name, node in nodes.items()},
    }


def status_table(nodes: Mapping[str, NodeStatus], *, every_node: bool = False) -> Table:
    """Return a table with a row per node; in a large fleet, per set of nodes in the same state."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "state", "group", "release", "packages", "drift"):
        table.add_column(heading, overflow="fold")
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, node in nodes.items():
        alike = _cells(node) if not every_node and len(nodes) > MANY else (*_cells(node), name)
        rows.setdefault(alike, []).append(name)
    for cells, names in rows.items():
        label = fold(names) if len(names) == 1 else f"{len(names)}: {fold(names)}"
        first = nodes[names[0]]
        style = "yellow" if first.labels in ("wrong", "no_host") else STYLES.get(first.drift or "")
        table.add_row(label, *cells[:5], style=style)
    return table


def _cells(node: NodeStatus) -> tuple[str, ...]:
    drift = node.sentence if node.drift not in (None, "none") else ""
    cells = (
        node.state if node.state != "ok" or node.release_id else "no release",
        node.group,
        node.release_id,
        ", ".join(node.packages),
        " ".join(filter(None, (node.reason or drift or node.sentence, _labels(node)))),
    )
    return tuple(clean(cell) if cell else "-" for cell in cells)


def _labels(node: NodeStatus) -> str:
    """Return the problems of the labels, with NODE for the name: equal nodes share a row."""
    if node.labels != "no_host":
        return node.labels_sentence
    return node.labels_sentence.replace(f" {node.node} ", " NODE ")


def going_back(nodes: Mapping[str, NodeStatus]) -> list[str]:
    """Return what a rollback would switch: from which release to which, on which nodes."""
    switches: dict[tuple[str, str | None], list[str]] = {}
    for name, node in nodes.items():
        if node.release_id:
            switches.setdefault((node.release_id, node.previous), []).append(name)
    lines = [
        f"{fold(names)}: from release {clean(now)} to {clean(before)}"
        if before
        else f"{fold(names)}: stays at release {clean(now)}: no earlier verified release is there"
        for (now, before), names in switches.items()
    ]
    without = [name for name, node in nodes.items() if not node.release_id]
    if without and lines:
        lines.append(f"{fold(without)}: no release, or not reached")
    return lines or ["No node serves a release."]


def to_remove(called: str, nodes: Mapping[str, NodeStatus]) -> list[str]:
    """Return what a removal would remove: which release serves where, and which one before it."""
    alike: dict[str, list[str]] = {}
    for name, node in nodes.items():
        before = f", and {clean(node.previous)} before it" if node.previous else ""
        none = "no release serves; one that was kept there is removed"
        now = f"release {clean(node.release_id)}{before}" if node.release_id else none
        alike.setdefault(now if node.state == "ok" else node.state, []).append(name)
    serving = [name for name, node in nodes.items() if node.state == "ok" and node.release_id]
    first = f"All {called} are removed from {fold(serving)}." if serving else f"No {called} serve."
    return [first, *(f"{fold(names)}: {what}" for what, names in alike.items())]


def drifted_nodes(nodes: Mapping[str, NodeStatus]) -> list[str]:
    """Return the nodes that differ from what the last apply or rollback left."""
    return [name for name, node in nodes.items() if node.drift not in (None, "none")]


def status_ending(nodes: Mapping[str, NodeStatus]) -> list[str]:
    """Return the counts, the age of the facts, and what to do about drift.
    """
    drifted = drifted_nodes(nodes)
    silent = [
        name
        for name, node in nodes.items()
        if node.state in ("unreachable", "unknown") and node.labels != "no_host"
    ]
    mislabelled = [name for name, node in nodes.items() if node.labels == "wrong"]
    serving = sum(node.release_id is not None for node in nodes.values())
    without_host = [node.node for node in nodes.values() if node.labels == "no_host"]
    counts = [count(len(nodes) - len(without_host), "node"), f"{serving} with a release"]
    if drifted or not (mislabelled or without_host):
        counts.append(f"{len(drifted)} drifted")
    if mislabelled:
        counts.append(f"{len(mislabelled)} with wrong labels")
    lines = [f"{', '.join(counts)}."]
    oldest = min((node.probed for node in nodes.values() if node.probed), default=None)
    if oldest and ago(oldest) != "just now":
        lines.append(f"Read {ago(oldest)}.")
    if mislabelled:
        fix = nodes[mislabelled[0]].labels_fix
        lines.append(f"wrong labels: {fold(mislabelled)}")
        lines.append(f"  fix: fleetbuild {fix}{' INVENTORY' if fix == 'verify' else ''}")
    if without_host:
        lines.append(f"labelled with this release, but not in the inventory: {fold(without_host)}")
    lines += troubles(
        {name: (nodes[name].state, nodes[name].reason, nodes[name].fix) for name in silent}
    )
    if drifted:
        lines.append("Next: fleetbuild plan INVENTORY")
    return lines
