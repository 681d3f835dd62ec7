"""The collection's modules are imported as Ansible imports them, without Ansible."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import plugin


@pytest.fixture(scope="session")
def stamp_wheel() -> ModuleType:
    return plugin("module_utils.builder.stamp_wheel")


@pytest.fixture(scope="session")
def wheel_inputs() -> ModuleType:
    return plugin("module_utils.builder.wheel_inputs")


@pytest.fixture(scope="session")
def memory() -> ModuleType:
    return plugin("module_utils.builder.memory")


@pytest.fixture(scope="session")
def source_tree() -> ModuleType:
    return plugin("module_utils.builder.source_tree")


@pytest.fixture(scope="session")
def build_folder() -> ModuleType:
    return plugin("module_utils.builder.build_folder")


@pytest.fixture(scope="session")
def build_compilers() -> ModuleType:
    return plugin("module_utils.builder.compilers")


@pytest.fixture(scope="session")
def wheel_build() -> ModuleType:
    return plugin("module_utils.builder.wheel_build")


@pytest.fixture(scope="session")
def build_steps() -> ModuleType:
    return plugin("module_utils.builder.build_steps")


@pytest.fixture(scope="session")
def isolation() -> ModuleType:
    return plugin("module_utils.builder.isolation")


@pytest.fixture(scope="session")
def toolchain() -> ModuleType:
    return plugin("modules.toolchain")


@pytest.fixture(scope="session")
def release() -> ModuleType:
    return plugin("modules.release")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a busy machine time to look for what uses a release."""
    monkeypatch.setattr(plugin("module_utils.releases_in_use"), "SECONDS", 60)


@pytest.fixture
def build(wheel_build: ModuleType, tmp_path: Path) -> Any:
    """A build that nothing was done for yet."""
    folder = tmp_path / "build"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a-1.0.tar.gz").write_bytes(b"not unpacked here")
    params = {
        "dir": str(folder),
        "package": "a",
        "isolation": "preferred",
        "wheel_version": "1.0+cpu",
        "source": "a-1.0.tar.gz",
        "source_sha256": hashlib.sha256(b"not unpacked here").hexdigest(),
        "requirements": [],
        "toolkit_wheels": [],
        "environment": {"CFLAGS": "-O2"},
        "config_settings": {},
        "files": {},
        "patches": [],
        "cuda": "",
        "gcc": "",
        "pins": [],
        "bundle": False,
        "jobs": 4,
        "python": "/usr/bin/python3",
        "cache": "none",
        "container": "",
        "abandoned": [],
        "cache_dir": str(tmp_path / "none"),
        "timeout": 60,
    }
    return wheel_build.Build(params)
