"""`fleetbuild env`: print how shells, services and notebooks use the release on this machine.

A shell keeps the release that it began with. A unit and a kernel are written once and started
often: each start takes the release that is current then, and its caches.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fleetbuild
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

Install = Annotated[
    str | None,
    typer.Option(
        "--install",
        metavar="NAME",
        help="Write the file where systemd or Jupyter reads it: as a drop-in of the unit NAME, or"
        " as the kernel NAME; for all users as root, else for you.",
    ),
]


def env(
    release: Release = "default",
    format: FormatOption = Format.SHELL,  # noqa: A002 (the option's name)
    install: Install = None,
    config: options.Config = None,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Print settings with which programs use the current release.

    It is the release that serves on this machine.
    """
    with Session(state_dir=state_dir) as run:
        from fleetbuild.cli import steps

        installed = steps.release_here(release, config)
        if format == Format.JUPYTER and not any(
            installed.path.glob("lib/python*/site-packages/ipykernel")
        ):
            raise fleetbuild.UsageError(
                "This release lacks ipykernel, so Jupyter cannot start it as a kernel.",
                "Add it where the packages are named (packages: in fleetbuild.yml, a requirements"
                " file or --package), then run: fleetbuild apply INVENTORY",
            )
        text = _TEXTS[format](installed, config or fleetbuild.find_config(fleetbuild.THIS_MACHINE))
        if install is None:
            run.out.text(text)
            return
        file = _place(format, install)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except (PermissionError, NotADirectoryError) as problem:
            raise fleetbuild.UsageError(
                f"{file} cannot be written: {problem.strerror}.",
                "Leave out --install to print the file, and write it where you may.",
            ) from None
        run.out.say(f"Wrote {file}.")
        if format == Format.SYSTEMD:
            user = "" if os.geteuid() == 0 else "--user "
            run.out.say(f"Next: systemctl {user}daemon-reload && systemctl {user}restart {install}")


def _place(format_: Format, name: str) -> Path:
    """Return the file from which systemd or Jupyter reads these settings."""
    if format_ == Format.SHELL:
        raise fleetbuild.UsageError(
            "--install goes with --format systemd and --format jupyter.",
            'For shells, add this line to ~/.profile: eval "$(fleetbuild env)"',
        )
    if not re.fullmatch(r"[A-Za-z0-9][\w.@-]*", name, re.ASCII):
        raise fleetbuild.UsageError(
            f"{name!r} is not a name for a unit or a kernel.", "Use letters, digits, -, _ and dots."
        )
    root = os.geteuid() == 0
    if format_ == Format.JUPYTER:
        data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        folder = Path("/usr/local/share" if root else data).expanduser()
        return folder / "jupyter" / "kernels" / name / "kernel.json"
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folder = Path("/etc/systemd/system" if root else f"{config}/systemd/user").expanduser()
    unit = name if "." in name else f"{name}.service"
    return folder / f"{unit}.d" / "fleetbuild.conf"


def _shell_exports(release: fleetbuild.InstalledRelease, _: Path | None) -> str:
    """Return lines for `eval "$(fleetbuild env)"` in any POSIX shell."""
    lines = [f"export {key}={shlex.quote(value)}" for key, value in release.environment.items()]
    programs = shlex.quote(str(release.path / "bin"))
    return "\n".join((*lines, f'export PATH={programs}:"$PATH"', "unset PYTHONHOME")) + "\n"


def _systemd_lines(release: fleetbuild.InstalledRelease, _: Path | None) -> str:
    """Return the lines of a unit, or of a drop-in."""
    current = str(release.current).replace("%", "%%")
    search = os.pathsep.join((f"{current}/bin", "/usr/local/bin:/usr/bin:/bin"))
    # In a unit, % begins a specifier: %C/%N is the cache of this unit, and %H the node, since nodes
    # may share a home. Only processes of this unit use this folder, and none runs before the start.
    folder = "%C/%N/%H"
    start = (
        f'cd "{folder}" && id=$$(basename $$(readlink {current})) && mkdir -p $$id && ln -sfn $$id'
        " current && find . -mindepth 1 -maxdepth 1 -type d ! -name $$id -exec rm -rf {} +"
    )
    values = {"PATH": search, "VIRTUAL_ENV": current, **release.compiled_below(f"{folder}/current")}
    lines = [f'Environment="{key}={value}"' for key, value in values.items()]
    last = ("CacheDirectory=%N/%H", f"ExecStartPre=/bin/sh -c '{start}'")
    return "\n".join(("[Service]", *lines, *last)) + "\n"


def _kernel_json(release: fleetbuild.InstalledRelease, config: Path | None) -> str:
    """Return a kernel.json, for a folder of Jupyter's kernels."""
    run = [sys.executable, "-P", "-m", "fleetbuild", "run", "--release", release.name]
    run += ["--config", str(config.absolute())] if config else []
    ipython = ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    named = {"display_name": f"fleetbuild {release.name}", "language": "python"}
    return json.dumps({"argv": [*run, "--", *ipython], **named}, indent=2) + "\n"


_TEXTS = {
    Format.SHELL: _shell_exports,
    Format.SYSTEMD: _systemd_lines,
    Format.JUPYTER: _kernel_json,
}
