"""Wheels of a kilobyte that are made to be slow, read in the separate process."""

from __future__ import annotations

import ast
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild.audit import audit_wheel
from fleetbuild.audit.downloads import installed_size
from fleetbuild.audit.entry_points import Unclear, read_entry_points
from fleetbuild.audit.import_names import import_names
from fleetbuild.audit.metadata import metadata_of
from fleetbuild.audit.needs import read_needs
from fleetbuild.audit.ownership import _declares_namespace
from tests.factories.growth import filled, is_linear

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    "unit", ["a ", " ", "\t", "=", "[", "[a]\n", "a=b\n", " #", "a" * 99 + "\n"]
)
def test_entry_points_are_read_in_linear_time(unit: str) -> None:
    def work(size: int) -> object:
        text = "[x]\na" + filled(unit, size) + "b=x:f"

        def read() -> None:
            try:
                read_entry_points(text)
            except Unclear:
                return

        return read

    assert is_linear(work, 1 << 20)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [" ", '"', "'", "\n", "extend_path(__path__, ", "pass "])
def test_an_init_of_a_namespace_is_read_in_linear_time(unit: str) -> None:
    def work(size: int) -> object:
        text = '"""' + filled(unit, size) + '"x'
        return lambda: _declares_namespace(text)

    assert is_linear(work, 1 << 20)  # type: ignore[arg-type]


def test_a_wheel_of_many_members_costs_this_process_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for number in range(210_000):
            archive.writestr(zipfile.ZipInfo(str(number)), "")
    began = time.process_time()
    found = audit_wheel(wheel).problems, read_needs(wheel).problems, installed_size(str(wheel))
    assert (import_names(wheel), metadata_of(wheel)) == ((), "")
    assert time.process_time() - began < 1
    assert found == (("it has 210000 members; more than 200000 are not examined",),) * 2 + (0,)


PACKAGE = Path(fleetbuild.__file__).parent
# They open sources, make a wheel, or add to one that was audited.
OTHERS = {"store/sources.py", "plan/resolve/uv.py", "extensions/supply/sbom.py"}


def opened(source: str) -> Iterator[str]:
    """Yield the functions that open a zip file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and "zipfile.ZipFile(" in ast.unparse(node):
            yield node.name


def test_wheels_are_opened_in_the_separate_process_alone() -> None:
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        if name not in OTHERS:
            assert all(each.endswith("_here") or (name, each) == ("audit/ownership.py", "_opened")
                       for each in opened(file.read_text("utf-8"))), name  # fmt: skip
