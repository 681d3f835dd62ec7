"""Tables and texts of a report as Markdown, for a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def table_lines(table: Table) -> list[str]:
    """Return a table as Markdown."""
    head = [str(column.header) for column in table.columns]
    rows = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    body = [f"| {' | '.join(escaped(cell) or ' ' for cell in row)} |" for row in (head, *rows)]
    return [body[0], "|---" * len(head) + "|", *body[1:]]


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is; a line end becomes a break.

    GitHub looks for mentions and issues in what Markdown has made, where a backslash is gone.
    """
    marked = re.sub(r"([\\|*_`\[\]()~])", r"\\\1", text.replace("&", "&amp;"))
    shown = marked.replace("<", "&lt;").replace("\n", "<br>")
    return re.sub(r"(@|#(?=\d))", r"\1<!-- -->", shown)
