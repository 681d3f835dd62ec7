"""What `fleetbuild doctor` found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetbuild.report.text import clean
from fleetbuild.text import count

if TYPE_CHECKING:
    from rich.table import Table

    from fleetbuild.tasks.doctor import Finding

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The document of `doctor --json`."""
    return {"format_version": "1.0", "checks": [asdict(finding) for finding in findings]}


def table(findings: Sequence[Finding]) -> Table:
    """A row for each finding, with the fix below what is wrong."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        said = clean(finding.found) + (f"\nfix: {clean(finding.fix)}" if finding.fix else "")
        rows.add_row(Text(finding.state, style=STYLES[finding.state]), finding.what, said)
    return rows


def ending(findings: Sequence[Finding]) -> str:
    """The last line: fit or not."""
    bad = sum(finding.state == "fail" for finding in findings)
    odd = sum(finding.state == "warn" for finding in findings)
    if bad:
        return f"{count(bad, 'thing')} missing: see fix above."
    if odd:
        return f"This controller is fit, with {count(odd, 'warning')}."
    return "This controller is fit. Next: fleetbuild init, or fleetbuild plan INVENTORY"
