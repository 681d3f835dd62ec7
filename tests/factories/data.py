"""The data of tests/unit/data: where it lies, and the captured fleet, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fleetbuild.models import Facts, Unreachable
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.parsing.facts import facts_of

DATA = Path(__file__).parents[1] / "unit" / "data"
SEED_FLEET = DATA / "seed-fleet"
NFD_CRDS = DATA / "nfd" / "nfd-api-crds.yaml"


@cache
def _facts_in(folder: Path) -> dict[str, Facts]:
    names = sorted(each.name for each in folder.iterdir())
    captures = load_captures(folder, names)
    assert not any(isinstance(each, Unreachable) for each in captures.values())
    return {name: facts_of(dict(capture)) for name, capture in captures.items()}


def seed_fleet() -> dict[str, Facts]:
    """The facts of the captured fleet, by node; a test may change the dictionary."""
    return dict(_facts_in(SEED_FLEET))
