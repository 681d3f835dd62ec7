"""`fleetbuild init`: write a configuration and an inventory, or a recipe, to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="The folder to write to, or the word recipe.")
]
Package = Annotated[
    str | None,
    typer.Argument(metavar="PACKAGE", help="After recipe: NAME, NAME==VERSION, or NAME @ PATH."),
]


def init(
    folder: Folder = ".",
    package: Package = None,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write a commented fleetbuild.yml and inventory.yml.

    `init recipe PACKAGE` writes the draft of a recipe instead, from the files of the package's
    sdist or source tree. It runs none of them.
    """
    with Session(state_dir=state_dir, verbose=verbose) as run:
        import fleetbuild

        if folder == "recipe":
            if package is None:
                raise fleetbuild.UsageError(
                    "init recipe needs a package.",
                    "Name it: fleetbuild init recipe NAME==VERSION. A folder called recipe is "
                    "written as ./recipe",
                )
            file = fleetbuild.init_recipe(package, state_dir=state_dir)
            run.out.say(
                f"Wrote {file}, a draft.",
                "Next: check it, keep it in recipes/ beside fleetbuild.yml, then run: "
                "fleetbuild plan INVENTORY",
            )
            return
        if package is not None:
            raise fleetbuild.UsageError(
                f"{package} is one argument too many.",
                f"Draft a recipe with: fleetbuild init recipe {package}",
            )
        config, inventory = fleetbuild.init(Path(folder))
        run.out.say(
            f"Wrote {config}.",
            f"Wrote {inventory}.",
            f"Next: name your nodes in {inventory}, then run: fleetbuild plan {inventory}",
        )
