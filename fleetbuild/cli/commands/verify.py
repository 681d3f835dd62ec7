"""`fleetbuild verify`: run the checks of the installed releases again."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

Repair = Annotated[
    bool,
    typer.Option("--repair", help="Install releases that are damaged or lost again."),
]


def verify(
    inventory: options.Source,
    repair: Repair = False,
    limit: options.Limit = None,
    config: options.Config = None,
    timeout: options.Timeout = None,
    forks: options.Forks = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
    ask_pass: options.AskPass = False,
    ask_become_pass: options.AskBecomePass = False,
    become_password_file: options.BecomePasswordFile = None,
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Run the checks of the current releases again, on every node."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.cli import steps

        keys = secrets(
            ask_pass, ask_become_pass, vault_password_file, vault_id, become_password_file
        )
        given = steps.fleet_options(
            config=config, timeout=timeout, forks=forks, kubeconfig=kubeconfig, context=context
        )
        fleet = steps.open_fleet(
            run, inventory, command="verify", limit=limit, secrets=keys, **given
        )
        steps.run_task(run, fleet, lambda: fleet.verify(repair=repair))
