"""`fleetbuild remove`: take releases off nodes."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options

# Named each time: the last plan must not decide which nodes lose their releases.
Inventory = Annotated[
    str,
    typer.Argument(metavar="INVENTORY", help="An Ansible inventory: file, directory, script."),
]
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
    inventory: Inventory,
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
    with output.session(events=True) as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show.status import to_remove
        from fleetbuild.text import fold

        if install_path is not None and (
            not install_path.startswith("/") or install_path.startswith("//")
        ):
            raise UsageError(f"{install_path!r} is not an absolute path.", "Write it from / on.")
        fleet = steps.open_fleet(run, inventory, command="remove", nodes=nodes, cluster=cluster)
        if not yes:
            called = f"releases called {fleet.config.release}"
            if install_path is not None:
                names = fold(node.name for node in fleet.inventory.nodes)
                run.out.say(f"All {called} below {install_path} are removed from {names}, if any.")
            elif not output.json:
                run.out.say(*to_remove(called, steps.status(run, fleet, offline=False)))
        if not steps.agreed(run, "Remove them?", "fleetbuild remove INVENTORY --yes", yes=yes):
            return
        work = partial(fleet.remove, install_path=install_path)
        steps.run_task(run, work, failed="failed to remove")
