"""`fleetbuild run`: run a command in the current release on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND", help="The command, with its arguments.")
]
Release = Annotated[str, typer.Option("--release", metavar="NAME", help="The release.")]


def run(
    command: Command,
    release: Release = "default",
    config: options.Config = None,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Run a command in the current release on this machine.

    Its programs come first in PATH. The command keeps this release if another one becomes current
    meanwhile.
    """
    with Session(state_dir=state_dir):
        import fleetbuild
        from fleetbuild.cli import steps

        installed = steps.release_here(release, config)
        path = f"{installed.path}/bin:{os.environ.get('PATH') or os.defpath}"
        environment = {**os.environ, **installed.environment, "PATH": path}
        environment.pop("PYTHONHOME", None)
        program = shutil.which(command[0], path=path)
        if program is None:
            raise fleetbuild.UsageError(
                f"{command[0]} is neither a program of the release nor in PATH.",
                f"The release's programs are in {installed.path / 'bin'}.",
            )
        sys.stdout.flush()
        os.execve(program, command, environment)  # noqa: S606 (a user's own command)
