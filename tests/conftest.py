"""What all tests share: the marks that folders imply, and the options of the lab."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("fleetbuild", deadline=None)
settings.load_profile("fleetbuild")

_TESTS = Path(__file__).parent
if str(_TESTS.parent) not in sys.path:
    sys.path.insert(0, str(_TESTS.parent))  # for `tests.lab`, whatever pytest was started as


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fleetbuild")
    group.addoption("--keep-lab", action="store_true", help="leave the labs up after the tests")
    group.addoption("--no-fleet", action="store_true", help="skip tests that need the lab's nodes")
    group.addoption("--long", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "molecule: runs a role's Molecule scenario in the lab")
    config.addinivalue_line("markers", "long: takes minutes; run by make test-long")
    config.addinivalue_line("markers", "fleet: needs the lab's real SSH nodes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("fleet", "molecule"):
            if (_TESTS / folder) in item.path.parents:
                item.add_marker(folder)
        needs_lab = any(item.get_closest_marker(mark) for mark in ("fleet", "molecule"))
        if needs_lab and config.getoption("--no-fleet"):
            item.add_marker(pytest.mark.skip(reason="--no-fleet"))
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: make test-long"))
