"""`fleetbuild provenance`: show where a wheel comes from, and check it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options

WheelArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHEEL",
        help="A wheel file, or a wheel in the store: NAME==VERSION, or the start of a sha256.",
    ),
]


def provenance(
    *,
    wheel: WheelArgument,
    output: options.OutputOptions,
) -> None:
    """Show and check where a wheel comes from.

    The exit code is 7 if a check fails.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show import store as report

        store = fleetbuild.Fleet(state_dir=output.state_dir).store
        origin = store.provenance(wheel)
        if output.json:
            run.out.document(report.provenance_document(origin))
        else:
            run.out.say(*report.provenance_lines(origin, every_file=output.verbose))
        run.exit_code = 7 if origin.failed else 0
