"""The report of `fleetbuild revoke`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetbuild.cli.show.text import clean, fold
from fleetbuild.models.revocation import Revocation
from fleetbuild.store.revoke import Revoked
from fleetbuild.text import count

if TYPE_CHECKING:
    from rich.table import Table

_DIGITS = 16  # of a sha256 in a table


def revocations_document(entries: Sequence[Revoked]) -> dict[str, Any]:
    """Return the document of `revoke --json` and `revoke --list --json`."""
    revoked = [
        {**each.revocation.model_dump(mode="json"), "wheels": each.wheels, "nodes": each.nodes}
        for each in entries
    ]
    return {"format_version": "1.0", "revoked": revoked}


def undone_document(entry: Revocation) -> dict[str, Any]:
    """Return the document of `revoke --undo --json`."""
    return {"format_version": "1.0", "taken_back": entry.model_dump(mode="json")}


def revocations_table(entries: Sequence[Revoked]) -> Table:
    """Return a table with a row per revocation."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("revoked", "since", "in the store", "serves on", "reason"):
        table.add_column(heading, overflow="fold")
    for each in entries:
        known = each.revocation
        what = known.what if "==" in known.what else known.what[:_DIGITS]
        nodes = clean(fold(each.nodes)) if each.nodes else "-"
        table.add_row(
            what, known.time[:10], "\n".join(each.wheels) or "-", nodes, clean(known.reason)
        )
    return table


def revoked_lines(revoked: Revoked) -> list[str]:
    """Return the lines after a revocation: the wheel, its places, and the next command."""
    lines = [f"Revoked {revoked.revocation.what}: {revoked.revocation.reason}"]
    if revoked.wheels:
        lines.append(f"In the store, and not used any more: {', '.join(revoked.wheels)}")
    if revoked.nodes:
        named = clean(fold(revoked.nodes))
        lines += [
            f"Serves on {count(len(revoked.nodes), 'node')}, by their last answer: {named}",
            "Next: fleetbuild plan INVENTORY, then fleetbuild apply, which replaces it there.",
        ]
    else:
        lines.append("No node serves it, by their last answers.")
    lines.append("A run that has already begun is not stopped.")
    return lines
