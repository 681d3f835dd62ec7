"""The pip that a build's environment gets comes from its own Python, and is the newest there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories.role_modules import plugin

own_pip = plugin("module_utils.builder.own_pip")


@pytest.fixture(params=["python", "python[3.12]"])
def folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[Path, Path]:
    """The folder of ensurepip's wheels, and the distribution's."""
    own, distribution = tmp_path / request.param / "_bundled", tmp_path / "distribution"
    for folder in (own, distribution):
        folder.mkdir(parents=True)
    monkeypatch.setattr(own_pip, "BUNDLED", (str(distribution),))
    monkeypatch.setattr(own_pip.subprocess, "check_output", lambda *_, **__: f"{own.parent}\n")
    return own, distribution


def test_the_pythons_own_wheel_comes_before_the_distributions(folders: tuple[Path, Path]) -> None:
    own, distribution = folders
    (distribution / "pip-99.0-py3-none-any.whl").touch()
    assert own_pip.pip_wheel("python").startswith(str(distribution))
    for version in ("9.0.3", "23.0.1", "25.3"):
        (own / f"pip-{version}-py3-none-any.whl").touch()
    assert own_pip.pip_wheel("python") == str(own / "pip-25.3-py3-none-any.whl")


def test_a_python_without_any_has_none(folders: tuple[Path, Path]) -> None:
    assert all(folder.is_dir() for folder in folders)
    assert own_pip.pip_wheel("python") == ""
