"""`make test` ends with one line of counts, whatever became of its parts."""

from pathlib import Path

import pytest

from tests.__main__ import closing_line

ROOT = Path(__file__).parents[3]
# What is tested in the unit tests beside the packages of fleetbuild/.
BESIDE = {"collection", "data", "docs", "packaging", "roles"}

GOOD = "....\n===== 3 passed, 1 skipped, 2 deselected, 1 warning in 1.20s =====\n"
BAD = "F\nFAILED a\n1 failed, 2 passed, 1 error in 812.07s (0:13:32)\n"


@pytest.mark.parametrize(
    ("logs", "line"),
    [
        ([GOOD, GOOD], "6 passed, 0 failed, 2 skipped"),
        ([GOOD, BAD], "5 passed, 2 failed, 1 skipped"),
        ([GOOD, "Traceback: it died\n"], "3 passed, 1 failed, 1 skipped"),
        ([GOOD, "no tests ran in 0.1s\n"], "3 passed, 0 failed, 1 skipped"),
    ],
)
def test_the_counts_of_both_parts_are_added_up(logs: list[str], line: str) -> None:
    assert closing_line(logs) == line


def test_the_unit_tests_have_the_folders_of_the_package() -> None:
    folders = {path.name for path in (ROOT / "tests/unit").iterdir() if path.is_dir()}
    packages = {path.parent.name for path in (ROOT / "fleetbuild").glob("*/__init__.py")}
    assert folders - BESIDE - {"__pycache__"} <= packages
