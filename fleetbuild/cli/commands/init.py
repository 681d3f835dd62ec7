"""`fleetbuild init`: a place to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session
from fleetbuild.errors import UsageError

Folder = Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to write.")]


def init(
    folder: Folder = Path(),
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write a commented fleetbuild.yml and inventory.yml."""
    with Session(state_dir=state_dir, verbose=verbose) as run:
        from fleetbuild.cli.commands.templates import CONFIG, INVENTORY
        from fleetbuild.schemas import editor_comment

        config = editor_comment("config") + CONFIG
        files = {folder / "fleetbuild.yml": config, folder / "inventory.yml": INVENTORY}
        for file in files:
            if file.exists():
                raise UsageError(
                    f"{file} exists, and nothing was written",
                    "remove it first, or name another folder: fleetbuild init DIR",
                )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in files.items():
                file.write_text(text, encoding="utf-8")
        except OSError as problem:
            raise UsageError(
                f"{problem.filename} cannot be written: {problem.strerror}",
                "name a folder that you can write to: fleetbuild init DIR",
            ) from problem
        run.out.say(
            *(f"Wrote {file}." for file in files),
            f"Next: name your nodes in {folder / 'inventory.yml'}, then run: "
            f"fleetbuild plan {folder / 'inventory.yml'}",
        )
