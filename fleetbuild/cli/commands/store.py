"""`fleetbuild store`: list, take in, remove, export and publish wheels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session
from fleetbuild.text import count

app = typer.Typer(
    help="List, check, export and remove the wheels in the store.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

WheelArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHEEL", help="A package, NAME==VERSION, or the start of a key or sha256."
    ),
]


def list_(
    output: options.OutputOptions,
) -> None:
    """List the stored wheels."""
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show import store as report

        wheels = fleetbuild.Fleet(state_dir=output.state_dir).store.list()
        if output.json:
            run.out.document({"wheels": [wheel.model_dump(mode="json") for wheel in wheels]})
        else:
            if wheels:
                run.out.show(report.store_table(wheels))
            run.out.say(report.store_ending(wheels))


def check(
    output: options.OutputOptions,
) -> None:
    """Read all stored files and remove damaged ones.

    The exit code is 7 if a wheel or a download was damaged.
    """
    with output.session() as run:
        import fleetbuild

        removed = [str(path) for path in fleetbuild.Fleet(state_dir=output.state_dir).store.check()]
        if output.json:
            run.out.document({"removed": removed})
        elif removed:
            run.out.say(*(f"Damaged and removed: {path}" for path in removed))
            run.out.say(
                "Next: fleetbuild plan INVENTORY, which builds or fetches them again if needed"
            )
        else:
            run.out.say("Every wheel and download is intact.")
        run.exit_code = 7 if removed else 0


def rm(
    wheel: WheelArgument,
    output: options.OutputOptions,
) -> None:
    """Remove the wheels of this name.

    A plan that reuses one of them must be made again.
    """
    with output.session() as run:
        import fleetbuild

        _tell_removed(run, fleetbuild.Fleet(state_dir=output.state_dir).store.remove(wheel))


def gc(
    output: options.OutputOptions,
) -> None:
    """Remove wheels that nothing uses, and old logs.

    Wheels of the last plan and of any node's release stay. Logs stay for 30 days.
    """
    with output.session() as run:
        import fleetbuild

        removed = fleetbuild.Fleet(state_dir=output.state_dir).store.gc()
        _tell_removed(run, removed)
        if not output.json:
            run.out.say(f"Removed {count(len(removed), 'path')}.")


def _tell_removed(run: Session, paths: Sequence[Path]) -> None:
    removed = [str(path) for path in paths]
    if run.out.json:
        run.out.document({"removed": removed})
    else:
        run.out.say(*(f"Removed {path}" for path in removed))


def fetch(
    *,
    config: options.Config = None,
    output: options.OutputOptions,
) -> None:
    """Fetch the locked dependencies of the last plan.

    Then list the groups whose release is still incomplete.
    """
    with output.session() as run:
        import fleetbuild

        files, lacks = fleetbuild.Fleet(config=config, state_dir=output.state_dir).store.fetch()
        if output.json:
            run.out.document({"fetched": files, "lacking": lacks})
        else:
            run.out.say(*(f"Fetched {file}" for file in files))
            run.out.say(f"Fetched {count(len(files), 'file')}.", *lacks)
