from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetbuild.cli import app
from tests.factories.data import DATA
from tests.factories.inventories import remember_inventories


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_inventories(monkeypatch, str(DATA / "fleet.yml"))


@pytest.fixture
def run(here: Path) -> Callable[..., Result]:
    """Runs a command line and gives back its exit code, stdout and stderr."""
    del here

    def call(*args: str | Path, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)

    return call
