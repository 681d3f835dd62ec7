"""`fleetbuild rollback`: switch each node to its previous release."""

from __future__ import annotations

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, at_terminal, secrets


def rollback(
    inventory: options.Source,
    limit: options.Limit = None,
    config: options.Config = None,
    yes: options.Yes = False,
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
    """Go back to the previous release on every node. At a terminal, ask first."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.cli import steps
        from fleetbuild.report.status import going_back

        keys = secrets(
            ask_pass, ask_become_pass, vault_password_file, vault_id, become_password_file
        )
        given = steps.fleet_options(
            config=config, timeout=timeout, forks=forks, kubeconfig=kubeconfig, context=context
        )
        fleet = steps.open_fleet(
            run, inventory, command="rollback", limit=limit, secrets=keys, **given
        )
        # Only a person is asked: scripts ran `rollback INVENTORY` before there was a --yes.
        if not yes and not json and at_terminal():
            run.out.say(*going_back(steps.status(run, fleet, offline=False)))
            if not run.out.ask("Roll back?"):
                run.out.say("Nothing was changed.")
                return
        steps.run_task(run, fleet, fleet.rollback, failed="failed to roll back")
