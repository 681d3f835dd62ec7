"""`fleetbuild store`: the wheels that were built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

app = typer.Typer(help="The wheels that were built.", no_args_is_help=True, rich_markup_mode=None)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Where to write, a folder a group.")]

Built = Annotated[
    Path, typer.Argument(metavar="DIR", help="The wheels that Jobs left, a folder for each.")
]


@app.command(name="list")
def list_wheels(
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """List the wheels."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        from fleetbuild.report import store as report
        from fleetbuild.store import Store

        wheels = Store(state_dir / "store").list()
        if json:
            run.out.document(report.store_document(wheels))
        else:
            if wheels:
                run.out.show(report.store_table(wheels))
            run.out.say(report.store_ending(wheels))


@app.command()
def gc(
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Remove what neither the last plan nor a release on a node needs, and logs after 30 days."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        removed = [str(path) for path in fleetbuild.collect_garbage(state_dir)]
        if json:
            run.out.document({"format_version": "1.0", "removed": removed})
        else:
            run.out.say(*(f"Removed {path}" for path in removed), f"Removed {len(removed)}.")


@app.command()
def export(
    folder: Folder,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write an index for each group of the last plan, which pip and uv can read."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        written = [str(path) for path in fleetbuild.export_store(folder, state_dir=state_dir)]
        if json:
            run.out.document({"format_version": "1.0", "indexes": written})
        else:
            run.out.say(*(f"Wrote {path}" for path in written))


@app.command()
def add(
    folder: Built,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Take in the last plan's wheels that Jobs built in a cluster, each held to its target."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.report.result import wheel_lines

        results = fleetbuild.add_wheels(folder, state_dir=state_dir)
        if json:
            wheels = [result.model_dump(mode="json") for result in results]
            run.out.document({"format_version": "1.0", "wheels": wheels})
        else:
            run.out.say(*wheel_lines(results))
        run.exit_code = 7 if any(result.state == "refused" for result in results) else 0
