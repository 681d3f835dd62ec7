"""`fleetbuild env`: print how shells, services and notebooks use the release on this machine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.commands.run import Release
from fleetbuild.cli.session import Session


class Format(StrEnum):
    """Who reads the output."""

    SHELL = "shell"
    SYSTEMD = "systemd"
    JUPYTER = "jupyter"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="shell: exports to eval; systemd: the [Service] lines of a unit; jupyter: a"
        " kernel.json.",
    ),
]


def env(
    release: Release = "default",
    format: FormatOption = Format.SHELL,  # noqa: A002 (the option's name)
    config: options.Config = None,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Print settings with which other programs use the current release on this machine."""
    with Session(state_dir=state_dir) as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show import env as report

        found = steps.release_here(release, config)
        if format == Format.SYSTEMD:
            run.out.text(report.systemd_lines(found))
        elif format == Format.JUPYTER:
            run.out.text(report.kernel_json(found))
            if not found.has_module("ipykernel"):
                run.out.warn(report.NO_KERNEL)
        else:
            run.out.text(report.shell_exports(found))
