"""`fleetbuild env`: print how shells, services and notebooks use the release on this machine.

A shell keeps the release that it began with. A unit and a kernel are written once and started
often, so they name the link `current`, which leads to the release that is current when they start.
"""

from __future__ import annotations

import json
import os
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.commands.run import Release
from fleetbuild.cli.session import Session

if TYPE_CHECKING:
    from fleetbuild import InstalledRelease


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
    """Print settings with which programs use the current release.

    It is the release that serves on this machine.
    """
    with Session(state_dir=state_dir) as run:
        from fleetbuild.cli import steps

        installed = steps.release_here(release, config)
        if format == Format.SYSTEMD:
            run.out.text(_systemd_lines(installed))
        elif format == Format.JUPYTER:
            run.out.text(_kernel_json(installed))
            if not installed.has_module("ipykernel"):
                run.out.warn(_NO_KERNEL)
        else:
            run.out.text(_shell_exports(installed))


_NO_KERNEL = (
    "warning: ipykernel is not in this release, so Jupyter cannot start this kernel. Add it under"
    " packages:, and apply."
)


def _shell_exports(release: InstalledRelease) -> str:
    """Return lines for `eval "$(fleetbuild env)"` in any POSIX shell."""
    lines = [f"export {key}={shlex.quote(value)}" for key, value in release.environment.items()]
    programs = shlex.quote(str(release.path / "bin"))
    return "\n".join((*lines, f'export PATH={programs}:"$PATH"', "unset PYTHONHOME")) + "\n"


def _systemd_lines(release: InstalledRelease) -> str:
    """Return the lines of a unit, or of a drop-in."""
    search = os.pathsep.join((f"{release.current}/bin", "/usr/local/bin:/usr/bin:/bin"))
    values = {"PATH": search, "VIRTUAL_ENV": str(release.current)}
    # In a unit, % begins a specifier.
    lines = [f'Environment="{key}={value.replace("%", "%%")}"' for key, value in values.items()]
    return "\n".join(("[Service]", *lines)) + "\n"


def _kernel_json(release: InstalledRelease) -> str:
    """Return a kernel.json, for a folder of Jupyter's kernels."""
    python = str(release.current / "bin" / "python")
    kernel = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"fleetbuild {release.name}",
        "language": "python",
        "env": {"VIRTUAL_ENV": str(release.current)},
    }
    return json.dumps(kernel, indent=2) + "\n"
