from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console, RenderableType

Rendered = Callable[..., str]


@pytest.fixture
def rendered() -> Rendered:
    """Renders as the report would at a terminal of some width, without color."""

    def render(renderable: RenderableType, width: int = 200) -> str:
        stream = io.StringIO()
        console = Console(
            file=stream, width=width, no_color=True, markup=False, highlight=False, emoji=False
        )
        console.print(renderable)
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

    return render
