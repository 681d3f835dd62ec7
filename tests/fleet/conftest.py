"""The lab as fixtures: one default fleet for the session, and others made to order."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from tests.lab import Lab, LabError, LesserCpuError

MakeLab = Callable[[Mapping[str, Any] | None], Lab]


def make_labs(config: pytest.Config) -> Iterator[MakeLab]:
    """Yield a function that brings labs up; they are gone once this is resumed."""
    with ExitStack() as labs:

        def make(fleet: Mapping[str, Any] | None = None) -> Lab:
            lab = Lab(f"test-{os.getpid()}-{uuid.uuid4().hex[:4]}", fleet)
            reason = ""
            try:
                lab.up()
            except LesserCpuError as error:
                pytest.skip(str(error))
            except LabError as error:
                reason = str(error)
            if reason:  # a lab that cannot be had fails tests: a silent skip would hide them
                pytest.fail(reason, pytrace=False)
            if not config.getoption("--keep-lab"):
                labs.callback(lab.down)
            return lab

        yield make


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[Lab]:
    """The default fleet. Tests that stop or change nodes leave them as they found them."""
    for make in make_labs(pytestconfig):
        yield make(None)


@pytest.fixture(scope="module")
def make_lab(pytestconfig: pytest.Config) -> Iterator[MakeLab]:
    """make_lab({"nodes": …}) brings a lab up; it is gone after the module."""
    yield from make_labs(pytestconfig)
