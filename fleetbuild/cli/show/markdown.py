"""Tables and texts of a report as Markdown, for a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def table_lines(table: Table) -> list[str]:
    """Return a table as Markdown."""
    columns = [[column.header, *column.cells] for column in table.columns]
    cells = ([escaped(str(cell)) or " " for cell in row] for row in zip(*columns, strict=True))
    head, *rows = [f"| {' | '.join(row)} |" for row in cells]
    return [head, "|---" * len(columns) + "|", *rows]


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is; a line end becomes a break.

    GitHub looks for mentions and issues in what Markdown has made, where a backslash is gone.
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;")
    marked = re.sub(r"([\\|*_`\[\]()~])", r"\\\1", plain).replace("\n", "<br>")
    return re.sub(r"(@|#(?=\d))", r"\1<!-- -->", marked)
