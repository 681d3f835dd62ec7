"""The scene of the faults: one lab for the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.scene import Scene, make_scene
from tests.fleet.conftest import make_lab  # noqa: F401 (a fixture)
from tests.lab import Lab


@pytest.fixture(scope="module")
def scene(
    make_lab: Callable[..., Lab],  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("faults")
    made = make_scene(make_lab, folder, ["one"])
    yield made
    made.lab.down()
    for disk in made.disks.values():
        disk.drop()
