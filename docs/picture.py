"""Run commands and draw what they print as an SVG of a terminal.

    python docs/picture.py docs/images/plan.svg WIDTH "fleetbuild plan …" "fleetbuild apply"

What a command prints is drawn as it is; only the commands themselves get a color. CONTRIBUTING.md
says which commands made the picture of README.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # rich names a web font: a fetch


def draw(commands: list[str], width: int, title: str = "fleetbuild") -> str:
    """Return the SVG of these commands and what they print."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        for number, command in enumerate(commands):
            console.print(Text(("\n" if number else "") + f"$ {command}", style="bold green"))
            console.print(Text.from_ansi(_output(command, width)))
        svg = console.export_svg(title=title, theme=MONOKAI, unique_id="picture")
    svg = _FONTS.sub("", svg).replace("Fira Code, monospace", "ui-monospace, Menlo, monospace")
    return svg + "\n"


def _output(command: str, width: int) -> str:
    environment = {**os.environ, "COLUMNS": str(width)}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    path, columns, *lines = sys.argv[1:]
    Path(path).write_text(draw(lines, int(columns)), encoding="utf-8")
