"""`fleetbuild plan`: what would be done, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Where the plan goes; default: plan.json of the state."
    ),
]
Detailed = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 10 where there is something to do.")
]


def plan(
    inventory: options.Source,
    config: options.Config = None,
    package: options.Packages = None,
    limit: options.Limit = None,
    captures: options.Captures = None,
    out: Out = None,
    detailed_exitcode: Detailed = False,
    timeout: options.Timeout = None,
    forks: options.Forks = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
    ask_pass: options.AskPass = False,
    ask_become_pass: options.AskBecomePass = False,
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Probe the nodes, group them and save a plan."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.cli import steps

        keys = secrets(ask_pass, ask_become_pass, vault_password_file, vault_id)
        fleet = steps.read(run, inventory, limit=limit, secrets=keys)
        settings = steps.settings(inventory, config)
        probed = steps.probe(run, fleet, settings, captures=captures, **steps.reach(timeout, forks))
        made = steps.plan(run, fleet, probed, settings, packages=package, secrets=keys)
        saved = steps.save_plan(run, made, out)
        steps.show_plan(run, made, probed.seconds, saved)
        run.exit_code = steps.plan_exit_code(made, detailed=detailed_exitcode)
