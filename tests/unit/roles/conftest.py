"""The collection's modules are imported as Ansible imports them, without Ansible."""

from __future__ import annotations

from types import ModuleType

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
