"""The collection's modules are imported as Ansible imports them, without Ansible."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import plugin


def _imported(module: str) -> Callable[..., ModuleType]:
    return pytest.fixture(scope="session")(lambda: plugin(module))


# Each is a fixture of this name.
MODULES = {
    "stamp_wheel": "module_utils.builder.stamp_wheel",
    "wheel_inputs": "module_utils.builder.wheel_inputs",
    "memory": "module_utils.builder.memory",
    "source_tree": "module_utils.builder.source_tree",
    "build_folder": "module_utils.builder.build_folder",
    "build_compilers": "module_utils.builder.compilers",
    "wheel_build": "module_utils.builder.wheel_build",
    "build_steps": "module_utils.builder.build_steps",
    "isolation": "module_utils.builder.isolation",
    "toolchain": "modules.toolchain",
    "release": "modules.release",
}
globals().update({name: _imported(module) for name, module in MODULES.items()})


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
