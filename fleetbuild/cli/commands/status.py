"""`fleetbuild status`: show what serves where, and what has changed since the last apply."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

Offline = Annotated[
    bool, typer.Option("--offline", help="Use the facts of the last probe, and show their age.")
]


def status(
    inventory: options.Source,
    limit: options.Limit = None,
    config: options.Config = None,
    offline: Offline = False,
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
    """Show the release that each node serves, and drift.

    Drift is a difference from the release that the last apply or rollback left. With --kubeconfig
    or --context, the labels of the cluster's Nodes are compared too.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.cli import steps
        from fleetbuild.report import status as report
        from fleetbuild.report.text import state_option

        if offline:
            steps.refuse_without_ssh("--offline", timeout=timeout, forks=forks)
        keys = secrets(
            ask_pass, ask_become_pass, vault_password_file, vault_id, become_password_file
        )
        given = steps.fleet_options(
            config=config, timeout=timeout, forks=forks, kubeconfig=kubeconfig, context=context
        )
        fleet = steps.open_fleet(
            run, inventory, command="status", limit=limit, secrets=keys, **given
        )
        found = steps.status(run, fleet, offline=offline)
        if json:
            run.out.document(report.status_document(found))
        else:
            run.out.show(report.status_table(found, every_node=verbose))
            named = steps.cluster_options(kubeconfig, context)
            by = fleet.labelled_by
            state = state_option(run.state_dir)
            ending = report.status_ending(found, inventory, by=by, cluster=named, state=state)
            run.out.say("", *ending)
        run.exit_code = 3 if any(node.state == "unreachable" for node in found.values()) else 0
