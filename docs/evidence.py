"""Pages and charts of evidence, from docs/evidence/*.json: figures, verified runs, built wheels.

In: a file for each measurement with all its runs, `verified.json`, and `wheels/`. Out: texts of
pages and SVGs, which docs/generate.py writes. A page shows the latest figure of each row; older
runs stay in the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "evidence"
NOTE = "<!-- Written by docs/generate.py from docs/evidence/. Run `make docs` after a change. -->\n"
# Order of the page; the first ones have a chart.
TOPICS = (
    "rungs", "torch-size", "torch-avx", "install", "install-cpu", "nothing-to-do", "large-wheel",
    "build", "here", "upgrade", "probe", "plan", "check", "distribution", "labels",
    "simulation",
)  # fmt: skip
_STYLE = """<style>
text{font:15px system-ui,sans-serif;fill:#1f2933}.t{font-weight:600}.s{fill:#52606d}
.p{fill:#fff}.g{stroke:#cbd2d9;stroke-width:1}.a{fill:#0f766e;stroke:#0f766e}
.b{fill:#9fb3c8;stroke:#7b8794}.l{fill:none;stroke-width:3}
@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.s{fill:#9aa5b1}.p{fill:#1e2129}
.g{stroke:#3e4c59}.a{fill:#2dd4bf;stroke:#2dd4bf}.b{fill:#627d98;stroke:#829ab1}}
.l{fill:none}.n{stroke:none}
</style>"""


def topic(name: str) -> dict[str, Any]:
    """Return a measurement with its runs, the latest last."""
    data: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return data


def latest(data: dict[str, Any]) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return each row with the run that has its latest figure, in the order of the fullest run."""
    found: dict[str, tuple[list[Any], dict[str, Any]]] = {}
    for run in data["runs"]:
        if run.get("columns", data["columns"]) == data["columns"]:
            found |= {row[0]: (row, run) for row in run["rows"]}
    return list(found.values())


def figures_page() -> str:
    """Return docs/benchmarks.md."""
    lines = [
        NOTE,
        "# Benchmarks\n",
        "The latest figure of each row. Machine, commit, command and all earlier figures are in",
        "[`docs/evidence/`](evidence/README.md). `make bench` measures most of them again. Nodes",
        "are containers on the machine that measures, so that it does the nodes' work too.\n",
    ]
    for name in TOPICS:
        data = topic(name)
        rows = latest(data)
        dates = sorted({run["date"] for _, run in rows})
        dated = len(dates) > 1
        lines += [f"## {data['title']}\n", data["about"], ""]
        if "chart" in data:
            lines += [f"![{data['chart']['title']}](images/{name}.svg)\n"]
        lines += _table(
            [*data["columns"], *(["date"] if dated else [])],
            [[*row, *([run["date"]] if dated else [])] for row, run in rows],
        )
        run = rows[-1][1] if not dated else max((run for _, run in rows), key=lambda r: r["date"])
        said = f"{run['date']}, commit {run['commit'] or 'not recorded'}, {run['machine']}."
        target = f" Target: {data['target']}." if "target" in data else ""
        lines += [f"\n`{run['command']}` on {said}{target}\n"]
    return "\n".join(lines)


def verified_page() -> str:
    """Return docs/verified.md."""
    lines = [
        NOTE,
        "# Verified runs\n",
        "Results of tests that take too long for `make test`, or that need special software or",
        "hardware, with the command that repeats each. Records of the wheels:",
        "[evidence](evidence/README.md).\n",
    ]
    for part in json.loads((FOLDER / "verified.json").read_text("utf-8")):
        lines += [f"## {part['title']}\n", part["about"], ""]
        rows = [
            [
                run["what"],
                run["result"] + (f". Not shown: {run['not shown']}" if "not shown" in run else ""),
                run["date"],
                f"`{run['repeat']}`" if run["repeat"] != "by hand" else "by hand",
            ]
            for run in part["runs"]
        ]
        lines += [*_table(["what", "result", "date", "repeat with"], rows), ""]
    return "\n".join(lines)


def evidence_page() -> str:
    """Return docs/evidence/README.md."""
    recipes = json.loads((FOLDER / "recipes.json").read_text("utf-8"))
    rows = [[each["recipe"], each["state"], each["tried"]] for each in recipes]
    text = (FOLDER / "page.txt").read_text("utf-8")
    made = {"@RECIPES@": _table(["recipe", "state", "tried"], rows), "@WHEELS@": list(wheels())}
    for mark, lines in made.items():
        text = text.replace(mark, "\n".join(lines))
    return NOTE + text


def wheels() -> Iterator[str]:
    """Yield the lines of the table of built wheels."""
    rows = []
    for path in sorted((FOLDER / "wheels").glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        files = record["files"].values()
        built = json.loads((FOLDER / "builds.json").read_text("utf-8")).get(path.stem, ["", "", ""])
        rows.append(
            [
                f"[{path.stem}](wheels/{path.name})",
                record["megabytes"],
                sum(each["kernels"] for each in files) or "-",
                "yes" if any(each["ptx"] for each in files) else "-",
                *built,
            ]
        )
    yield from _table(["wheel", "MB", "kernels", "PTX", "date", "took", "configuration"], rows)


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    align = "|".join("---" if _is_text(rows, n) else "--:" for n in range(len(columns)))
    lines = [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in (columns, *rows)]
    return [f"| {lines[0]} |", f"|{align}|", *(f"| {line} |" for line in lines[1:])]


def _is_text(rows: list[list[Any]], column: int) -> bool:
    return any(isinstance(row[column], str) and row[column] != "-" for row in rows)


def charts() -> dict[str, str]:
    """Return the SVG of each measurement that has a chart, by file name."""
    found = {name: topic(name) for name in TOPICS}
    return {"docs/images/why.svg": why()} | {
        f"docs/images/{name}.svg": (lines if data["chart"]["kind"] == "lines" else bars)(data)
        for name, data in found.items()
        if "chart" in data
    }


# The chart of the README: measurements, their columns, and the rows that it shows.
_WHY = (
    ("hnswlib: search speed, built for x86-64 = 1", "rungs", 1, "x86-64|avx|avx2|avx512"),
    ("torch 2.6.0, MB unpacked", "torch-size", 1, "PyPI.*|built for SM 8.6.*"),
    ("A small wheel to 50 SSH nodes, seconds", "install", 2, "fleet.*|a playbook.*|ssh.*"),
)


def why() -> str:
    """Return what a targeted wheel gains and what a rollout costs, as one chart."""
    parts, top = [], 30
    for title, name, column, wanted in _WHY:
        chosen = [row for row, _ in latest(topic(name)) if re.fullmatch(wanted, str(row[0]))]
        parts.append(f'<text class="t" x="16" y="{top}">{escape(title)}</text>')
        parts += _bars([(_short(str(row[0])), float(row[column])) for row in chosen], top + 26)
        top += 46 * len(chosen) + 52
    return "\n".join([_begin(440, top - 36, "Why"), *parts, "</svg>\n"])


def bars(data: dict[str, Any]) -> str:
    """Return horizontal bars, ours in colour, readable on a phone and in the dark."""
    rows = [(str(row[0]), float(row[1])) for row, _ in latest(data)]
    title = data["chart"]["title"]
    head = f'<text class="t" x="16" y="30">{escape(title)}</text>'
    return "\n".join([_begin(440, 58 + 46 * len(rows), title), head, *_bars(rows, 58), "</svg>\n"])


def _bars(rows: list[tuple[str, float]], top: int) -> Iterator[str]:
    most = max(value for _, value in rows)
    for number, (label, value) in enumerate(rows):
        y = top + 46 * number
        kind = "a" if label.startswith(("fleetbuild", "built for", "avx")) else "b"
        width = max(2, 340 * value / most)
        yield f'<text x="16" y="{y}">{escape(label)}</text>'
        yield f'<rect class="{kind} n" x="16" y="{y + 6}" width="{width:.0f}" height="14" rx="2"/>'
        yield f'<text x="{width + 24:.0f}" y="{y + 18}" class="s">{value:g}</text>'


def lines(data: dict[str, Any]) -> str:
    """Return a line for each row over the numbers in the names of the columns."""
    xs = [int(name.split()[0]) for name in data["columns"][1:]]
    rows = [(str(row[0]), [float(value) for value in row[1:]]) for row, _ in latest(data)]
    most = max(max(values) for _, values in rows)
    title = data["chart"]["title"]
    head = f'<text class="t" x="16" y="30">{escape(title)}</text>'
    parts = [_begin(560, 400, title), head]
    at = [(56 + 300 * x / xs[-1]) for x in xs]
    for share in (0, 0.5, 1):
        y = 340 - 270 * share
        parts += [
            f'<path class="g" d="M56 {y:.0f}H356"/>',
            f'<text x="48" y="{y + 5:.0f}" text-anchor="end" class="s">{most * share:.0f}</text>',
        ]
    parts += [
        f'<text x="{x:.0f}" y="362" text-anchor="middle" class="s">{n}</text>'
        for n, x in zip(xs, at, strict=True)
        if n in (xs[0], *xs[-2:])
    ]
    parts.append(
        f'<text x="206" y="388" text-anchor="middle" class="s">{data["chart"]["x"]}</text>'
    )
    for label, values in rows:
        points = [(x, 340 - 270 * v / most) for x, v in zip(at, values, strict=True)]
        path = "L".join(f"{x:.0f} {y:.0f}" for x, y in points)
        kind = "a" if label.startswith("fleetbuild") else "b"
        end = points[-1][1] + 5
        parts += [
            f'<path class="{kind} l" d="M{path}"/>',
            f'<text x="364" y="{end:.0f}">{escape(_short(label))}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _short(label: str) -> str:
    return label.partition(":")[0].replace("a playbook", "Ansible playbook")


def _begin(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title>{_STYLE}"
        f'<rect class="p" width="{width}" height="{height}" rx="8"/>'
    )
