"""`fleetbuild provenance`: show where a wheel comes from, and check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

Wheel = Annotated[
    str,
    typer.Argument(
        metavar="WHEEL",
        help="A wheel file, or a wheel in the store: NAME==VERSION, or the start of a sha256.",
    ),
]
AllowedSigners = Annotated[
    Path | None,
    typer.Option(
        "--allowed-signers",
        metavar="FILE",
        help="Who may sign, as for ssh-keygen; then an unsigned statement fails.",
    ),
]


def provenance(
    wheel: Wheel,
    allowed_signers: AllowedSigners = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Show where a wheel comes from, and check it (exit code 7 if a check fails)."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.report.wheels import provenance as report

        store = fleetbuild.Fleet(state_dir=state_dir).store
        found = store.provenance(wheel, allowed_signers=allowed_signers)
        if json:
            run.out.document(report.provenance_document(found))
        else:
            run.out.say(*report.provenance_lines(found, every_file=verbose))
        run.exit_code = 7 if found.failed else 0
