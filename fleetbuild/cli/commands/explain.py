"""`fleetbuild explain`: explain a node or group of the plan."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild.cli import options

Name = Annotated[str, typer.Argument(metavar="NODE|GROUP", help="A node or group of the plan.")]


def explain(
    *,
    name: Name,
    captures: options.Captures = None,
    output: options.OutputOptions,
) -> None:
    """Explain how a node or group is planned.

    Shows its rung, builder and wheels, and what blocks better ones.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show.text import ago, with_short_symbols

        story = fleetbuild.Fleet(state_dir=output.state_dir).explain(name, captures=captures)
        if output.json:
            run.out.document(story.model_dump(mode="json"))
        else:
            read = f"; the facts were read {ago(story.probed)}" if story.probed else ""
            lines = map(with_short_symbols, story.lines)
            run.out.say(*lines, f"Planned {ago(story.planned)}{read}.")
