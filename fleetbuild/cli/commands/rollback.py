"""`fleetbuild rollback`: back to the previous release."""

from __future__ import annotations

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets


def rollback(
    inventory: options.Source,
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
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Go back to the previous release on every node."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        import fleetbuild
        from fleetbuild.cli import steps

        keys = secrets(ask_pass, ask_become_pass, vault_password_file, vault_id)
        steps.errand(
            run, fleetbuild.rollback, inventory, limit=limit, config=config, secrets=keys,
            kubeconfig=kubeconfig, context=context, **steps.probe_options(timeout, forks),
        )  # fmt: skip
