"""Which uv is asked: the user's own if it is new enough, else the one that came with fleetbuild."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.programs import OLDEST_UV, bundled_uv, uv_program


@pytest.fixture(autouse=True)
def _ask_anew():
    uv_program.cache_clear()
    yield
    uv_program.cache_clear()


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("uv 0.9.5", True),
        ("uv 1.0.0-rc.1 (abc 2027-01-01)", True),
        ("uv 0.9.4", False),
        ("another program", False),
        (None, False),
    ],
)
def test_a_uv_on_path_is_taken_unless_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, taken: bool
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\necho '{said}'\n" if said else "")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert uv_program() == (str(uv) if taken else bundled_uv())


def test_without_one_on_path_the_bundled_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin:.")
    assert uv_program() == bundled_uv()


def test_the_dependency_states_the_same_oldest_version() -> None:
    text = Path("pyproject.toml").read_text(encoding="utf-8")
    assert f'"uv>={".".join(map(str, OLDEST_UV))}"' in text
