"""Sdists from the package index, for builds that a test makes itself."""

from __future__ import annotations

from pathlib import Path

from fleetbuild.starter_recipe import find_sdist
from fleetbuild.store.index_config import index_settings
from fleetbuild.store.wheels import Store


def fetch_sdist(name: str, version: str, folder: Path, python: str = "3.11") -> Path:
    """Fetch an sdist into `folder` without running its setup.py, which may import torch."""
    store = Store(folder, index_settings([], folder))
    return store.fetch(find_sdist(name, version, python, store.settings).sources[0])
