"""The report of `fleetbuild check`: a table, Markdown, or annotations for GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleetbuild.cli.show.markdown import escaped, table_lines
from fleetbuild.cli.show.text import clean, count, fold, with_short_symbols
from fleetbuild.extensions.check.report import CheckReport, CheckRow
from fleetbuild.models.verdict import VERDICT_WORDS

if TYPE_CHECKING:
    from rich.table import Table


def check_table(report: CheckReport, *, every_row: bool = False) -> Table:
    """Return a table with a row for each package, and a column for each kind of machine.

    Packages without machine code run everywhere, so they are shown only with `every_row`.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("package", overflow="fold")
    for kind in report.kinds:
        table.add_column(clean(kind, limit=60), overflow="fold")
    for name, rows in _packages(report, every_row).items():
        cells = [_cell(rows[kind]) if kind in rows else "-" for kind in report.kinds]
        dies = any(row.dies for row in rows.values())
        doubt = any(row.verdict == "undecided" for row in rows.values())
        table.add_row(clean(name), *cells, style="red" if dies else "yellow" if doubt else None)
    return table


def check_ending(report: CheckReport) -> list[str]:
    """Return why each package dies or is not decided, what to take instead, and the counts."""
    lines = []
    for row, kinds in _alike(report):
        lines.append(f"{_package(row)} {VERDICT_WORDS[row.verdict]} on {fold(kinds)}: {_why(row)}.")
        if row.instead:
            lines.append(f"  instead: {', '.join(row.instead)}")
        elif row.dies and row.file:
            lines.append("  instead: no other version is known to run there (--instead reads some)")
    pure = len({(row.name, row.sha256) for row in report.rows if not row.native})
    if pure:
        lines.append(f"{count(pure, 'package')} without machine code, which every kind runs.")
    lines += [f"{kind} is judged as {meaning}." for kind, meaning in report.kinds.items()]
    counts = {verdict: _number(report, verdict) for verdict in VERDICT_WORDS}
    numbers = [f"{VERDICT_WORDS[name]} {number}" for name, number in counts.items() if number]
    lines.append(f"Verdicts, one for each file and kind: {', '.join(numbers) or 'none'}.")
    if any(row.run_decides for row in report.rows):
        lines.append(
            "Add --emulate to run the undecided packages on the CPU of each kind, by QEMU."
        )
    return lines


def markdown_lines(report: CheckReport) -> list[str]:
    """Return the report as Markdown, with every package that has machine code."""
    lines = table_lines(check_table(report))
    lines.append("")
    for row, kinds in _alike(report):
        instead = f" Instead: {escaped(', '.join(row.instead))}." if row.instead else ""
        text = f"{_package(row)} {VERDICT_WORDS[row.verdict]} on {fold(kinds)}: {_why(row)}."
        lines.append(f"- {escaped(text)}{instead}")
    return lines


def github_lines(report: CheckReport) -> list[str]:
    """Return an annotation for each package that dies or is not decided."""
    lines = []
    for row, kinds in _alike(report):
        level = "error" if row.dies else "warning"
        instead = f" Instead: {', '.join(row.instead)}." if row.instead else ""
        text = f"{VERDICT_WORDS[row.verdict]} on {fold(kinds)}: {_why(row)}.{instead}"
        lines.append(f"::{level} title={_property(_package(row))}::{_escaped(text)}")
    counted = count(sum(row.dies for row in report.rows), "failure")
    return [
        *lines,
        f"::notice title=fleetbuild check::{counted}, {count(len(report.rows), 'verdict')}",
    ]


def _packages(report: CheckReport, every_row: bool) -> dict[str, dict[str, CheckRow]]:
    """Return package -> kind -> row."""
    found: dict[str, dict[str, CheckRow]] = {}
    for row in report.rows:
        if row.native or every_row:
            found.setdefault(_package(row), {})[row.kind] = row
    return found


def _alike(report: CheckReport) -> Iterable[tuple[CheckRow, list[str]]]:
    """Return a row for each text to show, with the kinds that it holds for."""
    alike: dict[tuple[object, ...], tuple[CheckRow, list[str]]] = {}
    for row in report.rows:
        if row.verdict != "runs":
            key = (row.name, row.version, row.verdict, row.where, row.instead)
            alike.setdefault(key, (row, []))[1].append(row.kind)
    return alike.values()


def _number(report: CheckReport, verdict: str) -> int:
    return sum(row.verdict == verdict for row in report.rows)


def _cell(row: CheckRow) -> str:
    words = VERDICT_WORDS[row.verdict]
    if row.verdict == "runs" and row.chooses:
        words = "runs, dispatches"
    notes: list[str] = [row.evidence] if row.evidence != "static" else []
    notes += ["imported"] if row.imported else []
    return f"{words} ({', '.join(notes)})" if notes else words


def _package(row: CheckRow) -> str:
    return clean(f"{row.name} {row.version}" if row.version else row.name, limit=120)


def _why(row: CheckRow) -> str:
    return clean(with_short_symbols(row.where or "no reason is known"), limit=600).rstrip(".")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
