"""`fleetbuild store`: the wheels that were built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

app = typer.Typer(help="The wheels that were built.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_wheels(
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """List the wheels."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.store import Store

        run.out.say(*map(str, Store(state_dir / "store").list()))


@app.command()
def gc(
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Remove wheels that the last plan and its nodes no longer need."""
    with Session(state_dir=state_dir, json=json, verbose=verbose):
        pass


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the index.")],
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write an index for each group that pip and uv can read."""
    with Session(state_dir=state_dir, json=json, verbose=verbose):
        print(folder)
