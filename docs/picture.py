"""Draw docs/images/fleet.svg: a terminal in which a fleet is planned and applied, as an animation.

In: what docs/your-fleet.md shows of the plan, docs/evidence/apply.jsonl (the events of one apply,
recorded by `fleetbuild apply --json` in `make lab LAB=book`) and its last lines in docs/rollout.md.
The rows in between are drawn by the program's own display, so that they look as they do today.
`python docs/picture.py` writes the picture; docs/generate.py --check compares it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path

from rich.console import Console

from fleetbuild.cli.show.board import Board
from fleetbuild.cli.show.progress import rows
from fleetbuild.models import Event

DOCS = Path(__file__).parent
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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f'<title>{title}</title>{style}<rect class="p" width="{width}" height="{height}" rx="8"/>'
        f"{dots}" + "\n".join(groups) + "</svg>\n"
    )


def _frames() -> Iterator[tuple[list[str], float]]:
    plan = ["$ fleetbuild plan inventory.yml --package hnswlib==0.8.0"]
    yield plan, 1.5
    yield [*plan, *_wrapped(_shown("your-fleet.md", "fleet/plan"))], 7
    apply = ["$ fleetbuild apply"]
    for moment in _moments():
        yield [*apply, *moment], 0.9
    ended = _shown("rollout.md", "lab/apply")
    start = next(n for n, line in enumerate(ended) if line.startswith("built: "))
    yield [*apply, *_wrapped(ended[start:])], 7


def _shown(page: str, name: str) -> list[str]:
    """Return the output of a transcript on a page."""
    text = (DOCS / page).read_text("utf-8")
    found = re.search(rf"<!-- transcript: {name} -->.*?```text\n(.*?)\n```", text, re.DOTALL)
    if found is None:
        raise SystemExit(f"docs/{page} shows no output of {name}.")
    return found[1].splitlines()


def _wrapped(lines: list[str]) -> Iterator[str]:
    """Yield the lines as a terminal of this width shows them."""
    for line in lines:
        for start in range(0, max(len(line), 1), COLUMNS):
            yield line[start : start + COLUMNS]


def _moments() -> Iterator[list[str]]:
    """Yield the rows of the display at moments of the recorded run."""
    lines = (DOCS / "evidence" / "apply.jsonl").read_text("utf-8").splitlines()
    about, *recorded = (json.loads(line) for line in lines)
    events = [Event.model_validate(each) for each in recorded]
    times = [datetime.fromisoformat(event.time).timestamp() for event in events]
    board, taken = Board(about["groups"], now=times[0]), 0
    for number in range(1, MOMENTS + 1):
        now = times[0] + (times[-1] - times[0] - 0.2) * number / MOMENTS
        while taken < len(events) and times[taken] <= now:
            board.take(events[taken], times[taken])
            taken += 1
        console = Console(width=COLUMNS, color_system=None, legacy_windows=False)
        with console.capture() as caught:
            console.print(rows(board, now, COLUMNS))
        yield [line.rstrip() for line in caught.get().rstrip().splitlines()]


def _lines(text: list[str]) -> Iterator[str]:
    for number, line in enumerate(text):
        kind = ' class="c"' if line.startswith("$ ") else ""
        if line:
            yield f'<text x="20" y="{56 + LINE * number}"{kind}>{escape(line)}</text>'


if __name__ == "__main__":
    (DOCS / "images" / "fleet.svg").write_text(draw(), encoding="utf-8")
