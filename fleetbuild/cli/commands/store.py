"""`fleetbuild store`: list, take in, remove, export and publish wheels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session
from fleetbuild.report.text import count

app = typer.Typer(
    help="List, check, export and remove the wheels in the store.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The folder to write to; each group gets a folder in it."),
]

Destination = Annotated[
    str,
    typer.Argument(
        metavar="DIR|URL",
        help="A folder of static indexes, or the address that twine would upload to.",
    ),
]
IndexUrl = Annotated[
    str | None,
    typer.Option(
        "--index-url",
        metavar="URL",
        help="The address that pip installs from, for the table; default: URL/simple/.",
    ),
]
Built = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="The folder with the Jobs' wheels, one folder per wheel, or one wheel."
    ),
]
Wheel = Annotated[
    str,
    typer.Argument(
        metavar="WHEEL", help="A package, NAME==VERSION, or the start of a key or sha256."
    ),
]


@app.command(name="list")
def list_wheels(
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """List the stored wheels."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        import fleetbuild
        from fleetbuild.report.wheels import store as report

        wheels = fleetbuild.Fleet(state_dir=state_dir).store.list()
        if json:
            run.out.document(report.store_document(wheels))
        else:
            if wheels:
                run.out.show(report.store_table(wheels))
            run.out.say(report.store_ending(wheels))


@app.command()
def check(
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Read all stored files and remove damaged ones.

    The exit code is 7 if a wheel or a download was damaged.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        removed = [str(path) for path in fleetbuild.Fleet(state_dir=state_dir).store.check()]
        if json:
            run.out.document({"format_version": "1.0", "removed": removed})
        elif removed:
            run.out.say(*(f"Damaged and removed: {path}" for path in removed))
            run.out.say(
                "Next: fleetbuild plan INVENTORY builds or fetches them again if they are needed"
            )
        else:
            run.out.say("Every wheel and download is intact.")
        run.exit_code = 7 if removed else 0


@app.command()
def rm(
    wheel: Wheel,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Remove the wheels of this name.

    A plan that reuses one of them must be made again.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        _tell_removed(run, fleetbuild.Fleet(state_dir=state_dir).store.remove(wheel), json)


@app.command()
def gc(
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Remove wheels that nothing uses, and old logs.

    Wheels of the last plan and of any node's release stay. Logs stay for 30 days.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        removed = fleetbuild.Fleet(state_dir=state_dir).store.gc()
        _tell_removed(run, removed, json)
        if not json:
            run.out.say(f"Removed {count(len(removed), 'path')}.")


def _tell_removed(run: Session, paths: Sequence[Path], json: bool) -> None:
    removed = [str(path) for path in paths]
    if json:
        run.out.document({"format_version": "1.0", "removed": removed})
    else:
        run.out.say(*(f"Removed {path}" for path in removed))


@app.command()
def fetch(
    config: options.Config = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Fetch the locked dependencies of the last plan.

    Then list the groups whose release is still incomplete.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        files, lacks = fleetbuild.Fleet(config=config, state_dir=state_dir).store.fetch()
        if json:
            run.out.document({"format_version": "1.0", "fetched": files, "lacking": lacks})
        else:
            run.out.say(*(f"Fetched {file}" for file in files))
            run.out.say(f"Fetched {count(len(files), 'file')}.", *lacks)


@app.command()
def export(
    folder: Folder,
    config: options.Config = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write a package index for each group of the last plan.

    The indexes are for pip and uv. variants.md lists which wheel is for which machine.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        store = fleetbuild.Fleet(config=config, state_dir=state_dir).store
        written = [str(path) for path in store.export(folder)]
        if json:
            run.out.document({"format_version": "1.0", "indexes": written})
        else:
            run.out.say(*(f"Wrote {path}" for path in written))
            if written:
                run.out.say(f"Which wheel is for which machine: {folder / 'variants.md'}")


@app.command()
def push(
    destination: Destination,
    index_url: IndexUrl = None,
    config: options.Config = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Publish the last plan's wheels: in static indexes in a folder, or by upload to a server."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild

        def tell(name: str, new: bool) -> None:
            if not json:
                run.out.say(f"{'Uploaded' if new else 'There already'}: {name}")

        store = fleetbuild.Fleet(config=config, state_dir=state_dir).store
        pushed = store.push(destination, index=index_url, on_file=tell)
        if json:
            table = str(pushed.table) if pushed.table else None
            run.out.document(
                {"format_version": "1.0", "new": pushed.new, "there": pushed.there, "table": table}
            )
        else:
            there = f", {count(len(pushed.there), 'file')} there already" if pushed.there else ""
            run.out.say(f"{count(len(pushed.new), 'file')} published{there}.")
            if pushed.table:
                run.out.say(f"Which wheel is for which machine: {pushed.table}")


@app.command()
def add(
    folder: Built,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Audit and store wheels that Jobs built in a cluster."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.report.result import wheel_lines

        results = fleetbuild.Fleet(state_dir=state_dir).store.add(folder)
        if json:
            wheels = [result.model_dump(mode="json") for result in results]
            run.out.document({"format_version": "1.0", "wheels": wheels})
        else:
            run.out.say(*wheel_lines(results))
        run.exit_code = 7 if any(result.state == "refused" for result in results) else 0
