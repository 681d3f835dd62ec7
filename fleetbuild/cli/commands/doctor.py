"""`fleetbuild doctor`: check whether this machine has what a run needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fleetbuild.cli import options
from fleetbuild.cli.show.text import advice
from fleetbuild.text import clean, count

if TYPE_CHECKING:
    from rich.table import Table

    from fleetbuild import Finding


def doctor(
    output: options.OutputOptions,
) -> None:
    """Check this machine: ssh, Ansible, uv, disk, the package index. Exit 2 if one is missing."""
    with output.session() as run:
        import fleetbuild

        findings = fleetbuild.Fleet(state_dir=output.state_dir).doctor()
        if output.json:
            run.out.document({"checks": [asdict(finding) for finding in findings]})
        else:
            run.out.show(table(findings))
            run.out.say("", ending(findings))
        run.exit_code = 2 if any(finding.state == "fail" for finding in findings) else 0


_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def table(findings: Sequence[Finding]) -> Table:
    """Return a table with a row per finding, and the fix below each problem."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        lines = clean(finding.found) + (f"\nfix: {advice(finding.fix)}" if finding.fix else "")
        rows.add_row(Text(finding.state, style=_STYLES[finding.state]), finding.what, lines)
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
