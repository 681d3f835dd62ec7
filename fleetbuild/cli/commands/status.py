"""`fleetbuild status`: what runs where, and what is no longer as the last apply left it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

Offline = Annotated[
    bool, typer.Option("--offline", help="Use the facts of the last probe, and say their age.")
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
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Show what runs where, and drift from the last apply; with a kubeconfig, of labels too."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.cli import steps
        from fleetbuild.cluster import Cluster
        from fleetbuild.report import status as report

        keys = secrets(ask_pass, ask_become_pass, vault_password_file, vault_id)
        fleet = steps.read(run, inventory, limit=limit, secrets=keys)
        settings = steps.settings_of_last_plan(run, inventory, config)
        cluster = Cluster(kubeconfig, context) if kubeconfig or context else None
        found = steps.status(
            run,
            fleet,
            settings,
            offline=offline,
            cluster=cluster,
            **steps.probe_options(timeout, forks),
        )
        if json:
            run.out.document(report.status_document(found))
        else:
            run.out.show(report.status_table(found, every_node=verbose))
            options_ = steps.cluster_options(kubeconfig, context)
            by = settings.kubernetes.labels
            run.out.say("", *report.status_ending(found, inventory, by=by, cluster=options_))
        run.exit_code = 3 if any(node.state == "unreachable" for node in found.values()) else 0
