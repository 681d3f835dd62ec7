"""`fleetbuild remove`: take releases off nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.cli.session import at_terminal

InstallPath = Annotated[
    str | None,
    typer.Option(
        "--install-path",
        metavar="PATH",
        help="The folder to remove releases from, if it is not install.path any more.",
    ),
]


def remove(
    *,
    inventory: options.InventoryArgument,
    install_path: InstallPath = None,
    yes: options.Yes = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Remove all releases from the nodes, and ask before.

    A release that is mounted or in use stays and is named. A node that left the inventory is named
    as a list of hosts: fleetbuild remove 'w07,'
    """
    with output.session() as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show.text import fold

        if install_path is not None and not install_path.startswith("/"):
            raise UsageError(f"{install_path!r} is not an absolute path.", "Write it from / on.")
        fleet = steps.open_fleet(run, inventory, command="remove", nodes=nodes, cluster=cluster)
        if not yes:
            names = [node.name for node in fleet.inventory.nodes]
            if output.json or not at_terminal():
                raise UsageError(
                    "Nobody can be asked here whether the releases are to be removed.", "Add --yes."
                )
            below = f" below {install_path}" if install_path else ""
            run.out.say(f"All releases{below} are removed from {fold(names)}.")
            if not run.out.ask("Remove them?"):
                run.out.say("Nothing was changed.")
                return
        steps.run_task(
            run, fleet, lambda: fleet.remove(install_path=install_path), failed="failed to remove"
        )
