"""`fleetbuild rollback`: switch each node to its previous release."""

from __future__ import annotations

from fleetbuild.cli import options
from fleetbuild.cli.session import at_terminal


def rollback(
    *,
    inventory: options.InventoryArgument,
    yes: options.Yes = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Go back to the previous release on every node. At a terminal, ask first."""
    with output.session(events=True) as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show.status import going_back

        fleet = steps.open_fleet(run, inventory, command="rollback", nodes=nodes, cluster=cluster)
        # Only a person is asked: scripts ran `rollback INVENTORY` before there was a --yes.
        if not yes and not output.json and at_terminal():
            run.out.say(*going_back(steps.status(run, fleet, offline=False)))
            if not run.out.ask("Roll back?"):
                run.out.say("Nothing was changed.")
                return
        steps.run_task(run, fleet, fleet.rollback, failed="failed to roll back")
