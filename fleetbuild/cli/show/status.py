"""The report of `fleetbuild status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleetbuild.cli.show.text import Trouble, ago, troubles
from fleetbuild.models import NodeStatus
from fleetbuild.text import clean, count, fold

if TYPE_CHECKING:
    from rich.table import Table

# In a larger fleet, nodes in the same state share a row.
MANY = 40
STYLES = {
    "missing": "red",
    "damaged": "red",
    "revoked": "red",
    "different": "yellow",
    "changed": "yellow",
}


def status_document(nodes: Mapping[str, NodeStatus]) -> dict[str, Any]:
    """Return the document of `status --json`."""
    return {"nodes": {name: node.model_dump(mode="json") for name, node in nodes.items()}}


def status_table(
    nodes: Mapping[str, NodeStatus], *, every_node: bool = False, packages: bool = False
) -> Table:
    """Return a table with a row per node; in a large fleet, per set of nodes in the same state.

    `packages` adds all packages of each node; else `status_ending` names them once.
    """
    from rich.table import Table

    headings = ("node", "state", "group", "release", *(["packages"] if packages else []))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, node in nodes.items():
        cells = _cells(node)[: len(headings) - 1]
        alike = cells if not every_node and len(nodes) > MANY else (*cells, name)
        rows.setdefault(alike, []).append(name)
    for cells, names in rows.items():
        label = fold(names) if len(names) == 1 else f"{len(names)}: {fold(names)}"
        first = nodes[names[0]]
        style = "yellow" if first.labels in ("wrong", "no_host") else STYLES.get(first.drift or "")
        table.add_row(label, *cells[: len(headings) - 1], style=style)
    return table


def _cells(node: NodeStatus) -> tuple[str, ...]:
    state = node.state if node.state != "ok" or node.release_id else "no release"
    cells = (
        node.drift if node.drift not in (None, "none") else state,
        node.group,
        node.release_id,
        ", ".join(node.packages),
    )
    return tuple(clean(cell) if cell else "-" for cell in cells)


def _served(nodes: Mapping[str, NodeStatus]) -> list[str]:
    """Return which packages are served everywhere, and where those are that are not.

    Two builds of a version are the same package.
    """
    where: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for package in node.packages:
            where.setdefault(package.partition("+")[0].replace("==", " "), []).append(name)
    serving = sum(bool(node.packages) for node in nodes.values())
    alike = [package for package, names in where.items() if len(names) == serving]
    lines = [f"Served on each node with a release: {clean(', '.join(alike))}."] if alike else []
    others = {package: names for package, names in where.items() if package not in alike}
    return [*lines, *(f"{clean(package)}: {fold(names)}" for package, names in others.items())]


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


def nothing_to_switch(nodes: Mapping[str, NodeStatus]) -> bool:
    """Return whether a rollback would change no node, and would find no problem either."""
    return all(
        node.state == "ok" and not node.previous and node.drift not in ("damaged", "missing")
        for node in nodes.values()
    )


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
    """Return problems and what to do, then the counts and the age of the facts."""
    drifted = drifted_nodes(nodes)
    mislabelled = [name for name, node in nodes.items() if node.labels == "wrong"]
    serving = sum(node.release_id is not None for node in nodes.values())
    without_host = [node.node for node in nodes.values() if node.labels == "no_host"]
    counts = [count(len(nodes) - len(without_host), "node"), f"{serving} with a release"]
    if drifted or not (mislabelled or without_host):
        counts.append(f"{len(drifted)} drifted")
    if mislabelled:
        counts.append(f"{len(mislabelled)} with wrong labels")
    oldest = min((node.probed for node in nodes.values() if node.probed), default=None)
    if oldest and ago(oldest) != "just now":
        counts.append(f"read {ago(oldest)}")
    lines = troubles({name: said for name, node in nodes.items() if (said := _said(node))})
    lines += troubles(
        {
            name: ("wrong labels", node.labels_sentence, node.labels_fix)
            if node.labels == "wrong"
            else ("not labelled", node.labels_sentence, None)
            for name, node in nodes.items()
            if node.labels in ("wrong", "no_node")
        }
    )
    lines += _served(nodes)
    lines.append(f"{', '.join(counts)}.")
    if drifted:
        lines.append("Next: fleetbuild plan INVENTORY")
    return lines


def _said(node: NodeStatus) -> Trouble | None:
    """Return a node's problem or note, which does not fit its row."""
    if node.labels == "no_host":
        return "labelled with this release, but not in the inventory", node.labels_sentence, None
    if node.state != "ok":
        return node.state, node.reason, node.fix
    what = "note" if node.drift in (None, "none") else node.drift
    return (what, node.sentence, None) if node.sentence else None
