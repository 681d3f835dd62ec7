"""`fleetbuild remove`: take releases off nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options

# Named each time: the last plan must not decide which nodes lose their releases.
Inventory = Annotated[
    str,
    typer.Argument(metavar="INVENTORY", help="An Ansible inventory: file, directory, script."),
]


def remove(
    *,
    inventory: Inventory,
    yes: options.Yes = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Remove all releases from the nodes, and ask before.

    A release that is mounted or in use stays and is named. A node that left the inventory is named
    as a list of hosts: fleetbuild remove 'w07,'
    """
    with output.session(events=True) as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show.status import to_remove

        fleet = steps.open_fleet(run, inventory, command="remove", nodes=nodes, cluster=cluster)
        if not yes and not output.json:
            called = f"releases called {fleet.config.release}"
            run.out.say(*to_remove(called, steps.status(run, fleet, offline=False)))
        if not steps.agreed(run, "Remove them?", "fleetbuild remove INVENTORY --yes", yes=yes):
            return
        steps.run_task(run, fleet.remove, failed="failed to remove")
