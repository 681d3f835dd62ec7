"""The data files read the same whoever parses them."""

from importlib.resources import files
from typing import Any

import pytest
import yaml

from fleetbuild.hardware import data

FILES = {
    path.name: room
    for room in ("fleetbuild.hardware", "fleetbuild.toolchains")
    for path in files(room).joinpath("data").iterdir()
    if path.name.endswith(".yml")
}


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_files_read_the_same_with_libyaml_and_without(
    loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: Any = getattr(yaml, loader, yaml.SafeLoader)
    monkeypatch.setattr(data, "_LOADER", chosen)
    assert {"cpus.yml", "pytorch.yml"} <= FILES.keys()
    for name, room in FILES.items():
        text = files(room).joinpath("data", name).read_text("utf-8")
        assert data.load(name, room) == yaml.safe_load(text), name
