"""`fleetbuild explain`: explain a node or group of the plan."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session

Name = Annotated[str, typer.Argument(metavar="NODE|GROUP", help="A node or group of the plan.")]


def explain(
    name: Name,
    captures: options.Captures = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Explain how a node or group is planned.

    Shows its rung, builder and wheels, and what blocks better ones.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.report.text import ago

        story = fleetbuild.Fleet(state_dir=state_dir).explain(name, captures=captures)
        if json:
            run.out.document({"format_version": "1.0", **story.model_dump(mode="json")})
        else:
            read = f"; the facts were read {ago(story.probed)}" if story.probed else ""
            run.out.say(*story.lines, f"Planned {ago(story.planned)}{read}.")
