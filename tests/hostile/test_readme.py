"""The table of attacks names tests that exist, and names every file of this folder."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "tests/hostile/README.md").read_text(encoding="utf-8")
FOUND = re.findall(
    r"^\| (first|second|third|fourth|own) \| .+ \| `(\S+)::(\S+)` \| .+ \|$", TEXT, re.MULTILINE
)
ROWS = [(file, name) for _, file, name in FOUND]


def test_every_row_names_a_test_that_exists() -> None:
    assert len(ROWS) >= 60
    assert len(set(ROWS)) == len(ROWS)
    missing = [
        f"{file}::{name}"
        for file, name in ROWS
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_row_is_read() -> None:
    counts = Counter(by for by, _, _ in FOUND)
    assert len(FOUND) == TEXT.count("\n| ") - TEXT.count("\n| found by ")
    assert counts["first"] >= 23
    assert counts["second"] >= 27
    assert counts["own"] >= 40


def test_every_file_of_this_folder_has_rows() -> None:
    files = {f"tests/hostile/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert files - {"tests/hostile/test_readme.py"} <= {file for file, _ in ROWS}
