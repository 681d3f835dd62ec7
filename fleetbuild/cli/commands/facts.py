"""`fleetbuild facts`: probe the nodes and show their facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options

Save = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="DIR", help="Write the captures to this folder, one folder per node."
    ),
]


def facts(
    *,
    inventory: options.InventoryArgument = None,
    captures: options.Captures = None,
    save: Save = None,
    nodes: options.NodeOptions,
    output: options.OutputOptions,
) -> None:
    """Probe the nodes and show their hardware and software."""
    with output.session() as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show import facts as report

        if captures:
            steps.refuse_without_ssh("--facts", save=save, timeout=nodes.timeout, forks=nodes.forks)
        fleet = steps.open_fleet(run, inventory, command="facts", nodes=nodes)
        by_node, seconds = steps.probe(run, fleet, captures=captures, save=save)
        if output.json:
            run.out.document(report.facts_document(by_node))
        else:
            run.out.show(report.facts_table(by_node, every_node=output.verbose))
            run.out.say("", *report.facts_ending(by_node, seconds))
        run.exit_code = 3 if any(f.state == "unreachable" for f in by_node.values()) else 0
