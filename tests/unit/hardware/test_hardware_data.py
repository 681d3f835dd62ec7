"""The data files read the same whoever parses them."""

from importlib.resources import files
from typing import Any

import pytest
import yaml

from fleetbuild.hardware import data

NAMES = sorted(path.name for path in files(data).iterdir() if path.name.endswith(".yml"))


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_files_read_the_same_with_libyaml_and_without(
    loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: Any = getattr(yaml, loader, yaml.SafeLoader)
    monkeypatch.setattr(data, "_LOADER", chosen)
    assert "pytorch.yml" in NAMES
    for name in NAMES:
        text = files(data).joinpath(name).read_text("utf-8")
        assert data.load(name) == yaml.safe_load(text), name
