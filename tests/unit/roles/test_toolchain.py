"""The distribution's own command, which may not answer."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture
def installs(toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A family whose command is a shell that runs its packages."""
    monkeypatch.setitem(toolchain.INSTALL, "odd", ["/bin/sh", "-c"])
    return toolchain


def test_one_that_does_not_end_is_ended_and_told(
    installs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installs, "PATIENCE", 0.2)
    problem = installs.install("odd", ["sleep 60 & sleep 60"])
    assert problem == "/bin/sh did not end within 0.2 s: see what holds it up there."


def test_its_last_words_are_the_problem(installs: ModuleType) -> None:
    assert installs.install("odd", ["true"]) is None
    assert installs.install("odd", ["echo a; echo b >&2; echo c; exit 1"]) == "b c"


def test_one_that_is_not_there_is_told(
    toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(toolchain.INSTALL, "odd", ["/no/such/command"])
    assert toolchain.install("odd", ["x"]) == "/no/such/command: No such file or directory."
