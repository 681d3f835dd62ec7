"""The report of `fleetbuild facts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleetbuild.cli.show.text import duration, troubles
from fleetbuild.models import Facts
from fleetbuild.text import clean, count, fold

if TYPE_CHECKING:
    from rich.table import Table

# In a larger fleet, nodes with the same values share a row.
MANY = 40
HEADINGS = ("node", "isa", "SM", "GPUs", "driver", "system", "libc", "python", "CPUs", "GB")


def facts_document(facts: Mapping[str, Facts]) -> dict[str, Any]:
    """Return the document of `facts --json`."""
    return {"nodes": {name: node.model_dump(mode="json") for name, node in facts.items()}}


def facts_table(facts: Mapping[str, Facts], *, every_node: bool = False) -> Table:
    """Return a table with a row per node; in a large fleet, per kind of node."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        right = heading in ("CPUs", "GB")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for names, cells in _rows(facts, every_node=every_node or len(facts) <= MANY):
        table.add_row(names, *cells)
    return table


def facts_ending(facts: Mapping[str, Facts], seconds: float) -> list[str]:
    """Return the warnings, the nodes that did not answer, and the count."""
    lines = _warnings(facts)
    for state in ("unsupported", "unreachable"):
        lines += troubles(
            {
                name: (state, node.reason or "no reason given", node.fix)
                for name, node in facts.items()
                if node.state == state
            }
        )
    well = sum(node.state == "ok" for node in facts.values())
    asked = sum(node.state != "skipped" for node in facts.values())
    return [*lines, f"{count(asked, 'node')} asked in {duration(seconds)}, {well} ok."]


def _rows(facts: Mapping[str, Facts], *, every_node: bool) -> list[tuple[str, tuple[str, ...]]]:
    if every_node:
        return [(clean(name), _cells(node)) for name, node in facts.items()]
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, node in facts.items():
        kinds.setdefault(_cells(node), []).append(name)
    return [(f"{len(names)}: {fold(names)}", cells) for cells, names in kinds.items()]


def _cells(facts: Facts) -> tuple[str, ...]:
    if facts.state in ("unreachable", "skipped"):
        return (facts.state,)
    cells = (
        facts.isa or ("unknown" if facts.state == "ok" else facts.state),
        " ".join(facts.sms),
        _gpus(facts),
        facts.driver,
        " ".join(filter(None, (facts.os.id, facts.os.version))),
        f"{facts.libc.family} {facts.libc.version}" if facts.libc else None,
        " ".join(python.version for python in facts.pythons),
        facts.cpus,
        round(facts.memory_gb) if facts.memory_gb is not None else None,
    )
    return tuple("-" if cell in (None, "") else clean(cell) for cell in cells)


def _gpus(facts: Facts) -> str:
    names = [gpu.name for gpu in facts.gpus]
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(name)}x {name}" for name in kinds)


def _warnings(facts: Mapping[str, Facts]) -> list[str]:
    """Return a line per warning, with all nodes that have it."""
    nodes: dict[str, list[str]] = {}
    for name, node_facts in facts.items():
        for text in node_facts.warnings:
            nodes.setdefault(text, []).append(name)
    return [f"warning: {fold(names)}: {clean(text)}" for text, names in nodes.items()]
