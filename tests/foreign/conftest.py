"""Labs whose nodes have other CPUs; where these cannot start, tests are reported as not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.fleet.conftest import make_lab  # noqa: F401 (a fixture)
from tests.lab import Lab
from tests.lab.emulation import CPUS, why_not


@pytest.fixture(scope="module")
def make_foreign_lab(
    make_lab: Callable[[Mapping[str, Any]], Lab],  # noqa: F811
) -> Callable[[Mapping[str, Any]], Lab]:
    """make_lab, for a fleet with nodes that say `cpu:`."""

    def make(fleet: Mapping[str, Any]) -> Lab:
        for arch in sorted(
            {CPUS[node["cpu"]].arch for node in fleet["nodes"].values() if "cpu" in node}
        ):
            if reason := why_not(arch):
                pytest.skip(reason)
        return make_lab(fleet)

    return make
