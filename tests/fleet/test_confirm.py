"""build.confirm: 2 on real nodes: two members build each wheel, and their content is compared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Config, Fleet
from fleetbuild.models.config import Build
from tests.lab import Lab

pytestmark = pytest.mark.long

# Compilers of one node write the node's name into the machine code.
LYING = """
for name in g++ c++ x86_64-linux-gnu-g++; do
  printf '#!/bin/sh\\nexec /usr/bin/g++-12 -include /usr/here.h "$@"\\n' > /usr/local/bin/$name
  chmod 755 /usr/local/bin/$name
done
echo 'static const char *here __attribute__((used)) = "planted";' > /usr/here.h
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    node = {"hardware": "avx", "gpu": False}
    return make_lab({"nodes": {"one": node, "two": node}})


def fleet_of(lab: Lab, state: Path, package: str, beside: tuple[str, ...] = ()) -> Fleet:
    config = Config(
        packages=(*beside, package),
        build=Build(confirm=2, policy="auto" if beside else "targeted"),
        release=package.split("=", maxsplit=1)[0],
    )
    return Fleet(fleetbuild.read_inventory(lab.inventory), config=config, state_dir=state)


def test_hnswlib_has_the_same_content_on_both(lab: Lab, tmp_path: Path) -> None:
    fleet = fleet_of(lab, tmp_path / "state", "hnswlib==0.8.0")
    plan = fleet.plan()
    result = fleet.apply(plan)
    assert plan.confirm == 2
    reasons = [wheel.reason for wheel in result.wheels] + [node.reason for node in result.nodes]
    assert result.exit_code == 0, reasons
    file = Path(str(result.wheels[0].file))
    statement = json.loads(file.with_name(f"{file.name}.intoto.json").read_text())
    internal = statement["predicate"]["buildDefinition"]["internalParameters"]
    builder = result.wheels[0].built_on
    assert {builder, internal["confirmedOn"]} == {"one", "two"}


def test_a_node_that_builds_something_else_is_found(lab: Lab, tmp_path: Path) -> None:
    lab.exec("two", LYING, check=True)
    for node in lab.nodes:  # built again, not taken from the build folder or the compiler cache
        lab.exec(node, "rm -rf ~/.cache/fleetbuild", user="fleet", check=True)
        lab.exec(node, "rm -rf /opt/fleetbuild", check=True)
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    fleet = fleet_of(lab, tmp_path / "state", "hnswlib==0.8.0")
    result = fleet.apply(fleet.plan())
    (wheel,) = result.wheels
    assert wheel.state == "refused", wheel.reason
    assert "hnswlib" in str(wheel.reason)
    assert ".so differs" in str(wheel.reason)
    assert result.exit_code == 7
    assert not Fleet(state_dir=tmp_path / "state").store.list()
    for node in lab.nodes:
        assert lab.exec(node, "test -e /opt/fleetbuild/hnswlib/current").returncode != 0


@pytest.mark.network
@pytest.mark.parametrize(
    ("package", "beside"),
    [("numpy==2.3.5", ()), ("torch-scatter==2.1.2", ("torch==2.13.0",))],
    ids=["numpy", "torch-scatter"],
)
def test_a_larger_package_is_compared(
    lab: Lab, tmp_path: Path, package: str, beside: tuple[str, ...]
) -> None:
    lab.exec("two", "rm -f /usr/local/bin/*g++ /usr/local/bin/c++", check=True)
    fleet = fleet_of(lab, tmp_path / "state", package, beside)
    plan = fleet.plan()
    if beside and plan.groups[0].wheels[0].wheel_version != "2.13.0+cpu":
        pytest.skip("no index has torch 2.13.0 for CPUs alone")
    name = package.partition("==")[0]
    (wheel,) = (each for each in fleet.apply(plan).wheels if each.package == name)
    print(f"\n{package}: {wheel.state}: {wheel.reason}")  # noqa: T201 (docs/verified.md)
    assert wheel.state in ("built", "refused"), wheel.reason
    assert wheel.state == "built" or "differs" in str(wheel.reason)
