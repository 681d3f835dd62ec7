"""A core without extensions refuses what only an extension does, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.errors import ConfigError, UsageError
from fleetbuild.fleet import Fleet
from fleetbuild.models import Config
from fleetbuild.plan.plan_fleet import plan_fleet
from tests.factories.fleets import drafted, facts, inventory

FLEET = {"a": facts("avx2")}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetbuild.extension.extensions", tuple)


@pytest.mark.parametrize(
    ("grouping", "key"),
    [
        ({"max_wheel_sets": 1}, "grouping.max_wheel_sets"),
        ({"optimize_for": "compatibility"}, "grouping.optimize_for"),
    ],
)
def test_groups_cannot_be_merged(grouping: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        drafted(FLEET, config=Config.model_validate({"grouping": grouping}))
    assert key in error.value.message
    assert key in str(error.value.fix)


def test_groups_that_nobody_asks_to_merge_are_planned() -> None:
    config = Config.model_validate({"grouping": {"optimize_for": "int8"}})
    assert len(drafted(FLEET, config=config).groups) == 1


def test_targets_cannot_be_named(tmp_path: Path) -> None:
    config = Config.model_validate({"packages": ["hnswlib==0.8.0"]}).within(str(tmp_path))
    with pytest.raises(UsageError) as error:
        plan_fleet(inventory(FLEET), FLEET, config, targets=["cpu-avx2-cp311"], state_dir=tmp_path)
    assert "--target" in str(error.value.fix)


def test_builds_do_not_run_in_a_container(tmp_path: Path) -> None:
    config = Config.model_validate({"build": {"container": "old:1"}}).within(str(tmp_path))
    fleet = Fleet(inventory(FLEET), config=config, state_dir=tmp_path)
    with pytest.raises(UsageError) as error:
        fleet.plan(["hnswlib==0.8.0"], facts=FLEET)
    assert "build.container" in error.value.message
