"""A newer ansible-core than any that was tried is named, and ends nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fleetbuild.ansible import untried_core
from fleetbuild.ansible.cores import NEWEST

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("core", ["2.23.0", "2.23.0b1", "2.30.1", "3.0"])
def test_a_newer_core_is_named_with_the_newest_that_was_tried(core: str) -> None:
    newest = ".".join(map(str, NEWEST))
    assert untried_core(core) == (
        f"ansible-core {core} is newer than any that fleetbuild was tried with. If a run fails in"
        f" Ansible, install {newest}: pip install 'ansible-core=={newest}.*'"
    )


@pytest.mark.parametrize("core", ["2.18.1", "2.22.0rc1", "2.22.9", "unknown"])
def test_others_are_not(core: str) -> None:
    assert untried_core(core) == ""


def test_the_installed_one_was_tried() -> None:
    assert untried_core() == ""


def test_package_and_collection_allow_the_versions_that_were_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (core,) = (each for each in project["dependencies"] if each.startswith("ansible-core"))
    collection = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"]
    for allowed in (Requirement(core).specifier, SpecifierSet(collection)):
        named = [f"2.{minor}.1" for minor in range(10, 40)]
        assert list(allowed.filter(named)) == [f"2.{n}.1" for n in range(18, NEWEST[1] + 1)]
