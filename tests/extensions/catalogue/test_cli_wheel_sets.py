"""grouping.max_wheel_sets and optimize_for, from fleetbuild.yml to what a user reads."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.factories.data import DATA

Run = Callable[..., Result]
PLAN = ("plan", DATA / "fleet.yml", "--facts", DATA / "fleet", "--config", "fleetbuild.yml")


@pytest.fixture
def planning(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Plans the captured fleet under some grouping, with no index at hand."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    for name in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")

    def plan(grouping: str, *more: str) -> Result:
        text = f"packages: [hnswlib==0.8.0]\ngrouping: {{{grouping}}}\n"
        (here / "fleetbuild.yml").write_text(text)
        return run(*PLAN, *more)

    return plan


def test_without_grouping_options_no_tradeoffs_are_shown(planning: Callable[..., Result]) -> None:
    result = planning("")
    assert "wheel sets" not in result.stdout
    document = json.loads(planning("", "--json").stdout)
    assert document["tradeoffs"] == []


def test_max_wheel_sets_merges_groups_and_shows_the_cost(
    planning: Callable[..., Result], run: Run
) -> None:
    result = planning("max_wheel_sets: 2")
    lines = result.stdout.splitlines()
    assert result.exit_code == 3  # a node is unreachable; nothing else is wrong
    assert any(line.startswith(">           2  ") for line in lines)
    assert "cpu-avx2-cp311 (1 node) gets cpu-avx-cp311: without avx2" in result.stdout
    told = run("explain", "avx2-gpu").stdout
    assert "avx2-gpu: ok, in group cpu-avx-cp311" in told
    assert "merged: its own group would be cpu-avx2-cp311; of 2 wheel sets it gets" in told
    assert "1 wheel set: " in run("explain", "cpu-avx-cp311").stdout


def test_max_wheel_sets_below_one_is_refused(planning: Callable[..., Result]) -> None:
    result = planning("max_wheel_sets: 0")
    assert result.exit_code == 2
    assert "max_wheel_sets" in result.stderr
