"""Seeds of the simulation, and what it finds in an engine that is broken on purpose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.broken import BROKEN

ROOT = Path(__file__).parents[2]
SLOW = ("a_lease_is_not_checked", "failures_have_no_limit", "a_drained_node_is_forgotten")


def simulate(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Play seeds in a process of their own, because they replace parts of the engine."""
    command = [sys.executable, "-m", "tests.simulation", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def passes(*arguments: object) -> str:
    done = simulate(*arguments)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def test_schedules_keep_the_guarantees() -> None:
    assert "80 schedules" in passes(0, 80)


# With the larger fleets these show faults that were corrected; see docs/reliability.md.
@pytest.mark.parametrize("seed", [22, 248, 3553, 124599])
def test_a_seed_plays_the_same_each_time(seed: int) -> None:
    words = (seed, 2, "--larger", "--story")
    first, again = (passes(*words).splitlines()[:-1] for _ in range(2))
    assert len(first) > 20
    assert first == again


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(), ("--larger",)])
def test_thousands_of_schedules_keep_the_guarantees(sizes: tuple[str, ...]) -> None:
    passes(80, 2000, *sizes)


@pytest.mark.long
def test_a_fleet_of_2000_nodes_keeps_them() -> None:
    passes(0, 1, "--nodes", 2000)


@pytest.mark.parametrize(
    "how", [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in BROKEN]
)
def test_a_broken_engine_is_found(how: str) -> None:
    done = simulate(0, 6000, "--broken", how)
    assert done.returncode == 1, f"{BROKEN[how].__doc__} Nobody noticed."
    assert "Again: python -m tests.simulation" in done.stdout
    assert "AssertionError" in done.stderr
