"""`fleetbuild audit`: show which CPU features, SMs and libc a wheel needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

Wheel = Annotated[Path, typer.Argument(help="A wheel file.")]


def audit(
    wheel: Wheel,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Show which CPU features, SMs and libc a wheel needs."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.report.wheels import audit as report

        found = fleetbuild.audit_wheel(wheel)
        if json:
            run.out.document(report.audit_document(found))
        else:
            run.out.say(*report.audit_lines(found, every_use=verbose))
        run.exit_code = 7 if found.problems else 0
