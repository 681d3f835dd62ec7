"""`fleetbuild status`: show what serves where, and what has changed since the last apply."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options

Offline = Annotated[
    bool, typer.Option("--offline", help="Use the facts of the last probe, and show their age.")
]

Packages = Annotated[
    bool,
    typer.Option("--packages", help="Show all packages of each node."),
]


def status(
    *,
    inventory: options.InventoryArgument = None,
    offline: Offline = False,
    packages: Packages = False,
    detailed_exitcode: options.Detailed = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Show the release that each node serves, and drift.

    Drift is a difference from the release that the last apply or rollback left. With --kubeconfig
    or --context, the labels of the cluster's Nodes are compared too.
    """
    with output.session() as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show import status as report

        if offline:
            steps.refuse_without_ssh("--offline", timeout=nodes.timeout, forks=nodes.forks)
        fleet = steps.open_fleet(
            run, inventory, command="status", nodes=nodes, cluster=cluster, probes=not offline
        )
        if unfinished := fleet.unfinished_run():
            run.out.warn(unfinished)
        statuses = steps.status(run, fleet, offline=offline)
        if output.json:
            run.out.document(report.status_document(statuses))
        else:
            table = report.status_table(statuses, every_node=output.verbose, packages=packages)
            run.out.show(table)
            run.out.say("", *report.status_ending(statuses))
        run.exit_code = 3 if any(node.state == "unreachable" for node in statuses.values()) else 0
        if detailed_exitcode and run.exit_code == 0 and report.drifted_nodes(statuses):
            run.exit_code = 10
