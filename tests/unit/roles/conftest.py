"""Modules of roles are imported by path, as Ansible does, without Ansible."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.factories.role_modules import ROLES, load


@pytest.fixture(scope="session")
def stamp_wheel() -> ModuleType:
    path = ROLES / "build_wheel/module_utils/stamp_wheel.py"
    return load(path, "ansible.module_utils.stamp_wheel")


@pytest.fixture(scope="session")
def wheel_inputs() -> ModuleType:
    path = ROLES / "build_wheel/module_utils/wheel_inputs.py"
    return load(path, "ansible.module_utils.wheel_inputs")


@pytest.fixture(scope="session")
def memory() -> ModuleType:
    return load(ROLES / "build_wheel/module_utils/memory.py", "ansible.module_utils.memory")


@pytest.fixture(scope="session")
def source_tree(wheel_inputs: ModuleType) -> ModuleType:
    path = ROLES / "build_wheel/module_utils/source_tree.py"
    return load(path, "ansible.module_utils.source_tree")


@pytest.fixture(scope="session")
def build_folder(source_tree: ModuleType) -> ModuleType:
    path = ROLES / "build_wheel/module_utils/build_folder.py"
    return load(path, "ansible.module_utils.build_folder")


@pytest.fixture(scope="session")
def build_compilers(wheel_inputs: ModuleType) -> ModuleType:
    path = ROLES / "build_wheel/module_utils/compilers.py"
    return load(path, "ansible.module_utils.compilers")


@pytest.fixture(scope="session")
def wheel_build(
    stamp_wheel: ModuleType,
    build_folder: ModuleType,
    build_compilers: ModuleType,
    memory: ModuleType,
) -> ModuleType:
    return load(ROLES / "build_wheel/module_utils/wheel_build.py", "fleetbuild_test_wheel_build")


@pytest.fixture(scope="session")
def toolchain() -> ModuleType:
    return load(ROLES / "toolchain/library/fleetbuild_toolchain.py", "fleetbuild_test_toolchain")


@pytest.fixture(scope="session")
def release() -> ModuleType:
    return load(ROLES / "install_wheel/library/fleetbuild_release.py", "fleetbuild_test_release")
