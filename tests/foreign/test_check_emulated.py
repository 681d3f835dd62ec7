"""Wheels made by the compiler here, each read by check and run under QEMU: both must agree.

Each has one defect that was seen in published wheels, or is built as it should be.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleetbuild.extensions.check.check_stack import check, judge_wheel
from fleetbuild.plan.resolve.sandbox import why_unavailable
from tests.factories.native import GXX, HEADERS, SOURCES, native_wheel

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (GXX and HEADERS.is_file()), reason="no g++ or no Python.h here"),
]
_WORK = "import demo; demo._c.work()"
USE = {"demo": _WORK}
# What becomes of each on a CPU with AVX and without AVX2.
ON_IVY_BRIDGE = {
    "plain": "runs",
    "ifunc": "runs",
    "cpu_check": "runs",
    "init_array": "dies-at-import",
    "in_use": "dies-in-use",
    "comdat": "dies-in-use",
}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert shutil.which("qemu-x86_64-static"), "Fix: apt-get install qemu-user-static"
    if reason := why_unavailable():
        pytest.skip(reason)
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "made/wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    for module in ("emulate", "check_stack"):
        monkeypatch.setattr(f"fleetbuild.extensions.check.{module}.use_of", lambda name: USE[name])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "made"


@pytest.mark.parametrize("source", [*SOURCES, "comdat"])
def test_a_run_tells_what_dies(index: Path, source: str) -> None:
    native_wheel(index, source)
    kinds = ["IvyBridge", "Haswell"]
    report = check(["demo"], kinds=kinds, emulate=True)
    found = {row.kind: row for row in report.rows}
    assert found["IvyBridge"].verdict == ON_IVY_BRIDGE[source], found["IvyBridge"].where
    assert (found["Haswell"].verdict, found["Haswell"].evidence) == ("runs", "emulated")


@pytest.mark.parametrize(
    ("source", "kind", "verdict"),
    [
        ("init_array", "IvyBridge", "dies-at-import"),
        ("in_use", "IvyBridge", "dies-in-use"),
        ("cpu_check", "IvyBridge", "runs"),
        ("init_array", "Haswell", "runs"),
    ],
)
def test_a_gate_for_one_wheel_runs_it(index: Path, source: str, kind: str, verdict: str) -> None:
    found = judge_wheel(native_wheel(index, source), [kind], emulate=True)[kind]
    assert (found.verdict, found.evidence) == (verdict, "emulated"), found.where


def test_a_given_use_dies_where_its_code_does(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(USE, "demo", "")
    native_wheel(index, "in_use")
    for use, verdict in (("import demo; print('done')", "undecided"), (_WORK, "dies-in-use")):
        (row,) = check(["demo"], kinds=["IvyBridge"], emulate=True, use=use).rows
        assert row.verdict == verdict
    assert row.where == "illegal instruction in the given use"
