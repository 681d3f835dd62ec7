"""The report of `fleetbuild check`: a table, Markdown, annotations for GitHub Actions, or SARIF."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from fleetbuild.audit.check import implied_features
from fleetbuild.cli.show.markdown import escaped, table_lines
from fleetbuild.cli.show.text import with_short_symbols
from fleetbuild.extensions.check.crash import Crash
from fleetbuild.extensions.check.machine_kinds import HERE, MachineKind
from fleetbuild.extensions.check.report import CheckReport, CheckRow
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models.verdict import DEATHS, VERDICT_WORDS, VerdictName
from fleetbuild.text import clean, count, fold

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
        lines.append(_sentence(row, kinds))
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
    lines += [f"Verdicts, one for each file and kind: {', '.join(numbers)}."] if numbers else []
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
        lines.append(f"- {escaped(_sentence(row, kinds) + _instead(row))}")
    return lines


def github_lines(report: CheckReport) -> list[str]:
    """Return an annotation for each package that dies or is not decided."""
    lines = []
    for row, kinds in _alike(report):
        level = "error" if row.dies else "warning"
        text = _sentence(row, kinds).removeprefix(f"{_package(row)} ") + _instead(row)
        lines.append(f"::{level} title={_property(_package(row))}::{_escaped(text)}")
    counted = count(sum(row.dies for row in report.rows), "failure")
    return [
        *lines,
        f"::notice title=fleetbuild check::{counted}, {count(len(report.rows), 'verdict')}",
    ]


def sarif_document(report: CheckReport) -> dict[str, Any]:
    """Return the report as SARIF 2.1.0, which code scanning of GitHub and editors read.

    A result is at the line that asks for the package, else at its wheel.
    """
    levels: dict[VerdictName, str] = dict.fromkeys(sorted(DEATHS), "error")
    levels["undecided"] = "warning"
    rules = [
        {
            "id": verdict,
            "shortDescription": {"text": f"{VERDICT_WORDS[verdict]} on a kind of machine"},
            "defaultConfiguration": {"level": level},
        }
        for verdict, level in levels.items()
    ]
    results = [
        {
            "ruleId": row.verdict,
            "level": levels[row.verdict],
            "message": {"text": _sentence(row, kinds) + _instead(row)},
            "locations": [{"physicalLocation": _place(report.places.get(row.name), row)}],
        }
        for row, kinds in _alike(report)
    ]
    run = {
        "tool": {"driver": {"name": "fleetbuild check", "rules": rules}},
        # False: a kind is missing, so that fewer results say nothing.
        "invocations": [{"executionSuccessful": not report.unresolved}],
        "results": results,
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


_CPU_RAN_IT = (
    "The CPU ran this instruction, so another CPU does not help. A debugger shows what called it."
)


def crash_lines(crash: Crash, kinds: Sequence[MachineKind]) -> list[str]:
    """Return what ended a program, where, which of the kinds would run it, and what to do now."""
    known = {each.value: each.name for each in signal.Signals}
    package = f"{crash.package} {crash.version or ''}" if crash.package else "none"
    problem = f" ({clean(crash.problem)})" if crash.problem else ""
    symbol = with_short_symbols(f"`{crash.function}`") if crash.function else "not known"
    needs = ", ".join(crash.features) or "nothing beyond x86-64"
    lines = [
        f"signal: {known.get(crash.signal, crash.signal)}",
        f"instruction: {clean(crash.instruction or 'not known', limit=200)}",
        f"package: {clean(package, limit=200).strip()}",
        f"file: {clean(crash.file or 'none, as of code that was made at run time')}{problem}",
        f"function: {clean(symbol)}",
    ]
    if crash.signal != signal.SIGILL:
        return [*lines, _CPU_RAN_IT]
    if crash.instruction is None:
        return [*lines, f"Neither the core nor {clean(crash.file or 'a file')} here has the bytes."]
    lines.insert(2, f"needs: {needs}")
    return [*lines, *_what_to_do(crash, frozenset(crash.features), kinds)]


def _what_to_do(
    crash: Crash, needed: frozenset[str], kinds: Sequence[MachineKind]
) -> Iterator[str]:
    if not needed:
        yield (
            "The program stopped itself, as Rust and __builtin_trap do, or another process sent the"
            " signal. Its last words on standard error say why."
        )
        if crash.file and Path(crash.file).name.startswith("qemu-"):
            yield "This is QEMU's own core: name the core of the program in it, qemu_*.core."
        return
    rungs = (
        rung.name
        for rung in RUNGS.values()
        if rung.arch == "x86_64" and needed <= implied_features(rung.arch, rung.features)
    )
    yield f"It runs from this rung on: {next(rungs, 'none')}"
    for kind in kinds:
        lacks = sorted(needed - kind.features)
        yield f"{kind.name}: {f'lacks {fold(lacks)}' if lacks else 'has that'}"
    if crash.package:
        name = canonicalize_name(crash.package)
        wanted = f"{name}=={crash.version}" if crash.version else name
        dying = next((kind.name for kind in kinds if needed - kind.features), "CPU")
        named = "" if dying == HERE else f" --for {shlex.quote(dying)}"
        yield (
            "To find a version that runs where it died: fleetbuild check"
            f" {clean(wanted, limit=200)}{named} --instead"
        )
    else:
        yield "The file is of no package: build it for the CPU, or take a CPU that has that."


def _place(place: str | None, row: CheckRow) -> dict[str, Any]:
    if place is None:
        return {"artifactLocation": {"uri": quote(row.file or row.name)}}
    file, _, line = place.rpartition(", line ")
    path = Path(file)
    is_below = path.is_relative_to(Path.cwd())
    uri = quote(str(path.relative_to(Path.cwd()))) if is_below else path.as_uri()
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": int(line)}}


def _sentence(row: CheckRow, kinds: list[str]) -> str:
    return f"{_package(row)} {VERDICT_WORDS[row.verdict]} on {fold(kinds)}: {_why(row)}."


def _instead(row: CheckRow) -> str:
    return f" Instead: {', '.join(row.instead)}." if row.instead else ""


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
    return words if row.evidence == "static" else f"{words} ({row.evidence})"


def _package(row: CheckRow) -> str:
    return clean(f"{row.name} {row.version}" if row.version else row.name, limit=120)


def _why(row: CheckRow) -> str:
    return clean(with_short_symbols(row.where or "no reason is known"), limit=600).rstrip(".")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
