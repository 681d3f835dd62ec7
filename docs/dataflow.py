"""Draw docs/images/dataflow.svg, the picture of docs/architecture.md: `python docs/dataflow.py`."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH, LEFT, RIGHT, BOX, SIDE, STEP, HEIGHT = 560, 16, 364, 280, 180, 84, 60
INK, PAPER, FILES, CODE, NODES = "#263238", "#ffffff", "#fff3d6", "#dcecf5", "#dff0e0"


class Row(NamedTuple):
    """A step on the controller, and what it exchanges with something beside it."""

    title: str
    text: str
    beside: tuple[str, str] | None = None
    arrow: str = ""  # "out", "in" or "both"
    color: str = CODE
    other: str = NODES


EVERY_NODE, INDEX = "every node", "package index"
ROWS = (
    Row("inventory, fleetbuild.yml", "and recipes: what the user writes", color=FILES),
    Row("probe/inventory/", "Ansible lists hosts: nodes, logins"),
    Row("probe/", "one script, one round trip", (EVERY_NODE, "cpuinfo, nvidia-smi …"), "both"),
    Row("plan/decide/", "eligibility, groups, wheels: a draft"),
    Row("plan/resolve/", "pins every file", (INDEX, "sdists, dependencies"), "in", other=FILES),
    Row("plan.json", "saved, exact, with a digest", color=FILES),
    Row("apply/check", "is the plan still right?", (EVERY_NODE, "probed again"), "both"),
    Row("apply/fetch", "locked files, by sha256", (INDEX, "fetched once"), "in", other=FILES),
    Row("apply/build", "playbook build.yml", ("representative", "toolchain, build_wheel"), "both"),
    Row("apply/audit, store/", "machine code against the target"),
    Row("apply/rollout", "playbook install.yml", ("its nodes", "install, verify, switch"), "out"),
    Row("apply/write_manifests", "for Kubernetes", ("cluster", "labels, pods"), "out", other=FILES),
)  # fmt: skip


def draw() -> str:
    """Return the SVG."""
    height = 56 + STEP * len(ROWS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        f' font-family="system-ui, sans-serif" fill="{INK}">',
        "<title>From the inventory to a served release</title>",
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4"',
        f' orient="auto-start-reverse"><path d="M0 0 9 4 0 8z" fill="{INK}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}"/>',
        _text(LEFT + BOX / 2, 30, "on the controller", 15),
        _text(RIGHT + SIDE / 2, 30, "beside it", 15),
    ]
    for number, row in enumerate(ROWS):
        top = 46 + STEP * number
        parts += _box(LEFT, top, BOX, (row.title, row.text), row.color)
        if number:
            parts.append(_arrow(LEFT + BOX / 2, top - STEP + HEIGHT, LEFT + BOX / 2, top, "out"))
        if row.beside:
            parts += _box(RIGHT, top, SIDE, row.beside, row.other)
            parts.append(_arrow(LEFT + BOX, top + HEIGHT / 2, RIGHT, top + HEIGHT / 2, row.arrow))
    return "\n".join([*parts, "</svg>\n"])


def _box(x: float, y: float, width: float, words: tuple[str, str], color: str) -> list[str]:
    title, text = words
    middle = x + width / 2
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="6"',
        f' fill="{color}" stroke="{INK}"/>',
        _text(middle, y + 26, title, 15, "600"),
        _text(middle, y + 47, text, 14),
    ]


def _text(x: float, y: float, text: str, size: int, weight: str = "400") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="middle">{escape(text)}</text>'
    )


def _arrow(x1: float, y1: float, x2: float, y2: float, way: str) -> str:
    tips = {"out": 'marker-end="url(#tip)"', "in": 'marker-start="url(#tip)"'}
    ends = " ".join(tips.values()) if way == "both" else tips[way]
    return f'<path d="M{x1:g} {y1:g} {x2:g} {y2:g}" stroke="{INK}" stroke-width="1.5" {ends}/>'


if __name__ == "__main__":
    Path(__file__).with_name("images").joinpath("dataflow.svg").write_text(draw(), encoding="utf-8")
