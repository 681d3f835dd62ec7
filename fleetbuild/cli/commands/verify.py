"""`fleetbuild verify`: run the checks of the installed releases again."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from fleetbuild.cli import options

Repair = Annotated[
    bool,
    typer.Option("--repair", help="Install releases that are damaged or lost again."),
]


def verify(
    *,
    inventory: options.InventoryArgument = None,
    repair: Repair = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Run the checks of the current releases again, on every node."""
    with output.session(events=True) as run:
        from fleetbuild.cli import steps

        fleet = steps.open_fleet(run, inventory, command="verify", nodes=nodes, cluster=cluster)
        steps.run_task(run, partial(fleet.verify, repair=repair))
