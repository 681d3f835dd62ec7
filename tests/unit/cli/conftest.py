from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetbuild.cli import app

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def run(here: Path) -> Callable[..., Result]:
    """Runs a command line and gives back its exit code, stdout and stderr."""
    del here

    def call(*args: str | Path, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)

    return call
