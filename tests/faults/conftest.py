"""The scene of the faults, one lab for the session, and the record of the cases that were run."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.scene import Scene, make_scene
from tests.fleet.conftest import make_labs


@pytest.fixture(scope="session")
def scene(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    for make in make_labs(pytestconfig):
        yield from play(make_scene(make, tmp_path_factory.mktemp("faults"), ["one"]))


def play(scene: Scene) -> Iterator[Scene]:
    """Yield the scene; its lab and its disks are gone afterwards."""
    yield scene
    scene.lab.down()
    for disk in scene.disks.values():
        disk.drop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a case ended as soon as it has ended: a run of hours may be cut short."""
    report = yield
    path: Path | None = item.config.getoption("--record")
    if path and (report.when == "call" or report.failed):
        minute = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
        words = (item.name, report.outcome, f"{report.duration:.0f}", minute)
        with path.open("a", encoding="utf-8") as file:
            file.write("\t".join(words) + "\n")
        if report.failed:
            with path.with_suffix(".failures").open("a", encoding="utf-8") as file:
                file.write(f"== {item.name}\n{report.longreprtext}\n")
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that passed in the record, so that a run resumes a stopped one."""
    path: Path | None = config.getoption("--record")
    if path and path.exists():
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        ended = {name: outcome for name, outcome, *_ in lines}
        done = [item for item in items if ended.get(item.name) == "passed"]
        items[:] = [item for item in items if item not in done]
        config.hook.pytest_deselected(items=done)
