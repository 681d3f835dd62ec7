"""`fleetbuild facts`: probe the nodes and show their facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

Save = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="DIR", help="Write the captures to this folder, one folder per node."
    ),
]


def facts(
    inventory: options.Source,
    limit: options.Limit = None,
    captures: options.Captures = None,
    save: Save = None,
    config: options.Config = None,
    timeout: options.Timeout = None,
    forks: options.Forks = None,
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
    """Probe the nodes and show their hardware and software."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.cli import steps
        from fleetbuild.report import facts as report

        if captures:
            steps.refuse_without_ssh("--facts", save=save, timeout=timeout, forks=forks)
        keys = secrets(
            ask_pass, ask_become_pass, vault_password_file, vault_id, become_password_file
        )
        given = steps.fleet_options(config=config, timeout=timeout, forks=forks)
        fleet = steps.open_fleet(
            run, inventory, command="facts", limit=limit, secrets=keys, **given
        )
        found, seconds = steps.probe(run, fleet, captures=captures, save=save)
        if json:
            run.out.document(report.facts_document(found))
        else:
            run.out.show(report.facts_table(found, every_node=verbose))
            run.out.say("", *report.facts_ending(found, seconds))
        run.exit_code = 3 if any(f.state == "unreachable" for f in found.values()) else 0
