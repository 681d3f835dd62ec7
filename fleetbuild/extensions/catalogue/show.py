"""The table that compares plans with other numbers of wheel sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetbuild.extensions.catalogue.explain import describe_loss, format_estimate
from fleetbuild.models import Plan, Tradeoff
from fleetbuild.text import clean

if TYPE_CHECKING:
    from rich.table import Table


def tradeoff_table(plan: Plan) -> Table:
    """Return a table with a row per number of wheel sets: time, size, and what each group loses."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("wheel sets", justify="right", no_wrap=True)
    table.add_column("on 8 cores, size", no_wrap=True)
    table.add_column("what nodes lose", overflow="fold")
    for row in plan.tradeoffs:
        style = "green" if row.chosen else "dim"
        mark = ">" if row.chosen else ""
        table.add_row(mark, str(row.wheel_sets), format_estimate(row), _losses(row), style=style)
    return table


def _losses(row: Tradeoff) -> str:
    lines = [describe_loss(loss) for loss in row.losses]
    if not row.exact:
        lines.append("Not every combination was compared.")
    return "\n".join(clean(line) for line in lines) or "nothing"
