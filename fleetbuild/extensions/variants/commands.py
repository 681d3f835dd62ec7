"""`fleetbuild store variants`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write to.")]


def store_variants(*, folder: Folder, output: options.OutputOptions) -> None:
    """Write one folder from which uv takes each machine's wheel.

    It holds the wheels of the last plan. Only uv's preview feature wheel-variants sees them; other
    installers see the wheel for any x86-64, if the plan has one. Only levels of x86-64 CPUs are
    variants.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.extensions.variants.export import write_variants

        stored = fleetbuild.Fleet(state_dir=output.state_dir).store
        written, left_out = write_variants(stored.last_plan(), stored.open(), folder)
        for sentence in left_out:
            run.out.warn(f"warning: {sentence}")
        if output.json:
            files = [path.name for path in written]
            run.out.document({"files": files})
            return
        run.out.say(*(f"Wrote {path}" for path in written))
        if written:
            run.out.say(
                f"Install with: uv pip install --preview-features wheel-variants"
                f" --find-links {folder} NAME"
            )
