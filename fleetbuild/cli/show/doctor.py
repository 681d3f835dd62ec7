"""The report of `fleetbuild doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetbuild.cli.show.text import clean
from fleetbuild.text import count

if TYPE_CHECKING:
    from rich.table import Table

    from fleetbuild.doctor import Finding

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the document of `doctor --json`."""
    return {"format_version": "1.0", "checks": [asdict(finding) for finding in findings]}


def table(findings: Sequence[Finding]) -> Table:
    """Return a table with a row per finding, and the fix below each problem."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        said = clean(finding.found) + (f"\nfix: {clean(finding.fix)}" if finding.fix else "")
        rows.add_row(Text(finding.state, style=STYLES[finding.state]), finding.what, said)
    return rows


def ending(findings: Sequence[Finding]) -> str:
    """Return the last line: whether this controller has what a run needs."""
    bad = sum(finding.state == "fail" for finding in findings)
    odd = sum(finding.state == "warn" for finding in findings)
    if bad:
        return f"{count(bad, 'problem')} found: apply the fixes above."
    if odd:
        return f"This controller is fit, with {count(odd, 'warning')}."
    return "This controller is fit. Next: fleetbuild init, or fleetbuild plan INVENTORY"
