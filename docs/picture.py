"""Draw docs/images/fleet.svg: a terminal in which a fleet is planned and applied, as an animation.

In: what docs/your-fleet.md shows of the plan, docs/evidence/apply.jsonl (the events of one apply,
recorded by `fleetbuild apply --json` in `make lab LAB=book`) and its last lines in docs/rollout.md.
The rows in between are drawn by the program's own display, so that they look as they do today.
`python docs/picture.py` draws it; with the file of such events, it takes them over first.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path

from rich.console import Console

from fleetbuild.cli.show.board import Board
from fleetbuild.cli.show.progress import rows
from fleetbuild.models import Event

DOCS = Path(__file__).parent
EVENTS = DOCS / "evidence" / "apply.jsonl"
COLUMNS, LINE, LETTER = 96, 20, 8.43
MOMENTS = 14  # frames of the apply
_STYLE = """<style>
.p{fill:#fbfaf7}.r{fill:#dcd6c8}.c{font-weight:700;fill:#0f766e}
text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#2b2b2b;white-space:pre}
@media (prefers-color-scheme:dark){.p{fill:#161b22}.r{fill:#30363d}
text{fill:#d5dbe3}.c{fill:#2dd4bf}}
.f{opacity:0;animation:TIMEs step-end infinite}
FRAMES
@media (prefers-reduced-motion:reduce){.f{animation:none}.z{opacity:1}}
</style>"""


def draw() -> str:
    """Return the SVG."""
    frames = list(_frames())
    total = sum(seconds for _, seconds in frames)
    height = LINE * max(len(text) for text, _ in frames) + 56
    width = round(COLUMNS * LETTER) + 40
    began, rules, groups = 0.0, [], []
    for number, (text, seconds) in enumerate(frames):
        start, end = 100 * began / total, 100 * (began + seconds) / total
        is_last = number == len(frames) - 1
        rules.append(
            f"@keyframes f{number}{{0%{{opacity:{int(not number)}}}{start:.2f}%{{opacity:1}}"
            f"{end:.2f}%{{opacity:{int(is_last)}}}}}.f{number}{{animation-name:f{number}}}"
        )
        last = " z" if is_last else ""
        groups.append(f'<g class="f f{number}{last}">{"".join(_lines(text))}</g>')
        began += seconds
    style = _STYLE.replace("TIME", f"{total:g}").replace("FRAMES", "\n".join(rules))
    title = "fleetbuild plan and apply on six nodes of three kinds"
    dots = "".join(f'<circle class="r" cx="{24 + 18 * n}" cy="20" r="6"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">'
        f'<title>{title}</title>{style}<rect class="p" width="{width}" height="{height}" rx="8"/>'
        f"{dots}" + "\n".join(groups) + "</svg>\n"
    )


def _frames() -> Iterator[tuple[list[str], float]]:
    command, output = _shown("your-fleet.md", "fleet/plan")
    plan = [f"$ {command}"]
    yield plan, 1.5
    yield [*plan, *_wrapped(output)], 7
    apply = ["$ fleetbuild apply"]
    for moment in _moments():
        yield [*apply, *moment], 0.9
    _, ended = _shown("rollout.md", "lab/apply")
    start = next(n for n, line in enumerate(ended) if line.startswith("built: "))
    yield [*apply, *_wrapped(ended[start:])], 7


def _shown(page: str, name: str) -> tuple[str, list[str]]:
    """Return the command and the output of a transcript on a page."""
    text = (DOCS / page).read_text("utf-8")
    block = rf"<!-- transcript: {name} -->\n```sh\n(.*?)\n```\n```text\n(.*?)\n```"
    found = re.search(block, text, re.DOTALL)
    if found is None:
        raise SystemExit(f"docs/{page} shows no output of {name}.")
    return found[1], found[2].splitlines()


def _wrapped(lines: list[str]) -> Iterator[str]:
    """Yield the lines in the width of the picture."""
    for line in lines:
        yield from textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]


def _moments() -> Iterator[list[str]]:
    """Yield the rows of the display at moments of the recorded run."""
    _, *recorded = EVENTS.read_text("utf-8").splitlines()  # the first line says how
    events = [Event.model_validate_json(line) for line in recorded]
    times = [datetime.fromisoformat(event.time).timestamp() for event in events]
    board, taken = Board(_groups(events), now=times[0]), 0
    for number in range(1, MOMENTS + 1):
        now = times[0] + (times[-1] - times[0] - 0.2) * number / MOMENTS
        while taken < len(events) and times[taken] <= now:
            board.take(events[taken], times[taken])
            taken += 1
        console = Console(width=COLUMNS, color_system=None, legacy_windows=False)
        with console.capture() as caught:
            console.print(rows(board, now, COLUMNS))
        yield [line.rstrip() for line in caught.get().rstrip().splitlines()]


def _groups(events: list[Event]) -> dict[str, list[str]]:
    """Return the nodes of each group."""
    groups: dict[str, list[str]] = {}
    for event in events:
        if event.group and event.stage == "install":
            groups.setdefault(event.group, []).extend(event.nodes or ())
    return {name: sorted(set(nodes)) for name, nodes in sorted(groups.items())}


def _lines(text: list[str]) -> Iterator[str]:
    for number, line in enumerate(text):
        kind = ' class="c"' if line.startswith("$ ") else ""
        if line:
            yield f'<text x="20" y="{56 + LINE * number}"{kind}>{escape(line)}</text>'


def take_over(file: Path) -> None:
    """Keep the events of another run, and how it was recorded."""
    text = file.read_text("utf-8").replace(str(file.resolve().parent), "/home/ops/fleet")
    about = {
        "date": json.loads(text.partition("\n")[0])["time"][:10],
        "machine": f"{os.cpu_count()} cores, six nodes in containers on them",
        "commit": commit(),
        "command": "make lab LAB=book; fleetbuild plan …; fleetbuild apply --json",
    }
    EVENTS.write_text(json.dumps(about) + "\n" + text, encoding="utf-8")


def commit() -> str:
    """Return the commit of this checkout."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(
        command, cwd=DOCS, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        take_over(Path(name))
    (DOCS / "images" / "fleet.svg").write_text(draw(), encoding="utf-8")
