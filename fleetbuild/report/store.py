"""The wheels of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetbuild.report.text import clean, size
from fleetbuild.store import StoredWheel
from fleetbuild.text import count

if TYPE_CHECKING:
    from rich.table import Table


def store_document(wheels: Sequence[StoredWheel]) -> dict[str, Any]:
    """The document of `store list --json`: where each wheel is, and where it comes from."""
    return {"format_version": "1.0", "wheels": [wheel.model_dump(mode="json") for wheel in wheels]}


def store_table(wheels: Sequence[StoredWheel]) -> Table:
    """A row for each wheel."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("wheel", "for", "libc", "size", "built on", "built at", "key"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "size" else "left")
    for wheel in wheels:
        known = wheel.provenance
        table.add_row(
            f"{clean(known.package)}-{clean(known.wheel_version)}",
            clean(known.group),
            f"{known.libc.family} {known.libc.floor}",
            size(known.size),
            clean(known.built_on),
            clean(known.built_at),
            known.artifact_key[:12],
        )
    return table


def store_ending(wheels: Sequence[StoredWheel]) -> str:
    """How many, and how much."""
    return f"{count(len(wheels), 'wheel')}, {size(sum(w.provenance.size for w in wheels))}."
