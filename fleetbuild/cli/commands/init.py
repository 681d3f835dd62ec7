"""`fleetbuild init`: write a configuration and an inventory to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write to.")]


def init(
    folder: Folder = Path(),
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write a commented fleetbuild.yml and inventory.yml."""
    with Session(state_dir=state_dir, verbose=verbose) as run:
        import fleetbuild

        config, inventory = fleetbuild.init(folder)
        run.out.say(
            f"Wrote {config}.",
            f"Wrote {inventory}.",
            f"Next: name your nodes in {inventory}, then run: fleetbuild plan"
            f" {shlex.quote(str(inventory))}",
        )
