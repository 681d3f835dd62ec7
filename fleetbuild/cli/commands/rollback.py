"""`fleetbuild rollback`: switch each node to its previous release."""

from __future__ import annotations

from fleetbuild.cli import options


def rollback(
    *,
    inventory: options.InventoryArgument = None,
    yes: options.Yes = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Go back to the previous release on every node, and ask before."""
    with output.session(events=True) as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show.status import going_back, nothing_to_switch

        fleet = steps.open_fleet(run, inventory, command="rollback", nodes=nodes, cluster=cluster)
        if not (yes or output.json):
            status = steps.status(run, fleet, offline=False)
            run.out.say(*going_back(status))
            if nothing_to_switch(status):
                run.out.say("Nothing to do.")
                return
        if not steps.agreed(run, "Roll back?", "fleetbuild rollback INVENTORY --yes", yes=yes):
            return
        result = steps.run_task(run, fleet.rollback, failed="failed to roll back")
        left = [node.node for node in result.nodes if node.state != "rolled_back"]
        if 0 < len(left) < len(result.nodes):  # the others would go back one more
            again = f"fleetbuild rollback INVENTORY --limit {','.join(left)}"
            run.out.say(f"Next: fix the errors above, then roll back the rest alone: {again}")
