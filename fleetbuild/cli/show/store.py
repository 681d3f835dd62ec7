"""What `store list` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetbuild.cli.show.text import size
from fleetbuild.models.stored import StoredWheel
from fleetbuild.text import clean, count

if TYPE_CHECKING:
    from rich.table import Table


def store_table(wheels: Sequence[StoredWheel]) -> Table:
    """Return a table with a row per wheel."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("wheel", "for", "libc", "size", "built on", "stored at", "key"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "size" else "left")
    for wheel in wheels:
        provenance, mark = wheel.provenance, " (revoked)" if wheel.revoked else ""
        table.add_row(
            f"{clean(provenance.package)}-{clean(provenance.wheel_version)}{mark}",
            clean(provenance.group),
            f"{provenance.libc.family} {provenance.libc.floor}",
            size(provenance.size),
            clean(provenance.built_on),
            clean(provenance.built_at),
            provenance.artifact_key[:12],
        )
    return table


def store_ending(wheels: Sequence[StoredWheel]) -> str:
    """Return the number of wheels and their size."""
    return f"{count(len(wheels), 'wheel')}, {size(sum(w.provenance.size for w in wheels))}."
