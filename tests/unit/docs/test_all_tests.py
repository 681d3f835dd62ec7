"""`make test` ends with one line of counts, whatever became of its parts."""

import sys
from pathlib import Path

import pytest

from tests import __main__ as all_tests
from tests.__main__ import closing_line

ROOT = Path(__file__).parents[3]
# The topics of the unit tests beside the packages of fleetbuild/.
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


@pytest.mark.parametrize("room", ["tests/unit", "tests/fleet"])
def test_every_unit_test_and_fleet_test_is_in_one_part(room: str) -> None:
    folders = [each for each in (ROOT / room).iterdir() if list(each.rglob("test_*.py"))]
    wanted = [str(path.relative_to(ROOT)) for path in (*folders, *(ROOT / room).glob("test_*.py"))]
    named = [word for words in all_tests.PARTS.values() for word in words]
    assert sorted(word for word in named if word.startswith(f"{room}/")) == sorted(wanted)


def test_a_part_that_fails_is_shown_and_decides_the_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_good.py").write_text("def test_good(): pass\n")
    (tmp_path / "test_bad.py").write_text("def test_bad(): raise OSError('because')\n")
    pytest = (sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), "-c", "/dev/null")
    commands = {name: (*pytest, str(tmp_path / f"test_{name}.py")) for name in ("good", "bad")}
    assert all_tests.main(commands, tmp_path / "logs") == 1
    said = capfd.readouterr().out
    assert "because" in said
    assert said.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_the_unit_tests_have_the_folders_of_the_package() -> None:
    folders = {path.name for path in (ROOT / "tests/unit").iterdir() if path.is_dir()}
    packages = {path.parent.name for path in (ROOT / "fleetbuild").glob("*/__init__.py")}
    assert folders - BESIDE - {"__pycache__"} <= packages
