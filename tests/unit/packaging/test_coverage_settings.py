"""Which modules the coverage of the pure modules judges."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARSING = ROOT / "fleetbuild" / "probe" / "parsing"


def test_of_the_parsers_only_the_pure_one_is_judged() -> None:
    coverage = pytest.importorskip("coverage")
    files = pytest.importorskip("coverage.files")
    omit = coverage.Coverage(config_file=str(ROOT / "pyproject.toml")).get_option("run:omit")
    omitted = files.GlobMatcher(files.prep_patterns([str(ROOT / pattern) for pattern in omit]))
    judged = [path.name for path in PARSING.glob("*.py") if not omitted.match(str(path))]
    assert sorted(judged) == ["__init__.py", "facts.py"]
