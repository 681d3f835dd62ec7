"""The distribution's own command, which may not answer."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.factories.role_modules import ROLES


@pytest.fixture
def installs(toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A family whose command is a shell that runs its packages."""
    monkeypatch.setitem(toolchain.INSTALL, "odd", ["/bin/sh", "-c"])
    return toolchain


def test_a_package_manager_that_hangs_is_ended_with_an_error(
    installs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installs, "PATIENCE", 0.2)
    problem = installs.install("odd", ["sleep 60 & sleep 60"])
    assert problem == "/bin/sh did not end within 0.2 s: find out what blocks it."


def test_the_end_of_its_output_is_the_reason(installs: ModuleType) -> None:
    assert installs.install("odd", ["true"]) is None
    assert installs.install("odd", ["echo a; echo b >&2; echo c; exit 1"]) == "b c"


def test_a_missing_gcc_is_an_error(toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(toolchain.INSTALL, "odd", ["/no/such/command"])
    assert toolchain.install("odd", ["x"]) == "/no/such/command: No such file or directory."


def test_a_library_without_headers_is_to_be_installed(
    toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(toolchain, "LIBRARIES", (str(tmp_path), str(tmp_path / "*-linux-gnu")))
    folder = tmp_path / "aarch64-linux-gnu"
    folder.mkdir()
    (folder / "libopenblas.so.0").touch()  # what a node runs with alone

    def missing() -> bool:
        return "openblas" in toolchain.look("/none", "none", [], [], ["openblas"])[1]

    assert missing()
    (folder / "libopenblas.so").touch()
    assert not missing()


def test_every_family_has_packages_for_openblas_and_cargo(toolchain: ModuleType) -> None:
    packages = yaml.safe_load((ROLES / "toolchain/defaults/main.yml").read_text())
    for family in toolchain.FAMILIES:
        wanted = ["openblas", "cargo>=1.63"]
        named = toolchain.names(packages["toolchain_packages"][family], wanted, "", {})
        assert "openblas" in named["openblas"][0]
        assert named["cargo>=1.63"] == ["cargo"]


def test_a_tool_that_is_too_old_is_to_be_installed(
    toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(toolchain, "version", lambda name: "1.65.0" if name == "cargo" else "9.9")

    def missing(tool: str) -> bool:
        return tool in toolchain.look("/none", "none", [tool], [])[1]

    assert not missing("cargo")
    assert not missing("cargo>=1.63")
    assert missing("cargo>=1.70")
