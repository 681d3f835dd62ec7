"""What a real gcc and a real loader say on nodes comes back as sentences with their fixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetbuild import Config, Fleet
from tests.factories.files import make_project
from tests.lab import Lab

# A different thing is wrong on each rung: what a compiler misses, what it refuses, what only a
# loader misses.
CODE = """
#include <Python.h>
#if defined(__AVX2__)
#include <no_such.h>
#elif defined(__AVX__)
#include <immintrin.h>
__m256 f(__m256 a) { return _mm256_fmadd_ps(a, a, a); }
#else
extern int nobody_has_this(void);
int f(void) { return nobody_has_this(); }
#endif
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "wrong", 0, -1, 0};
PyMODINIT_FUNC PyInit_wrong(void) { return PyModule_Create(&definition); }
"""
SETUP = """
from setuptools import Extension, setup
setup(ext_modules=[Extension("wrong", ["module.c"])])
"""


def test_each_failure_is_explained_in_a_sentence(
    make_lab: Callable[[Mapping[str, Any]], Lab], tmp_path: Path
) -> None:
    tree = tmp_path / "wrong"
    tree.mkdir()
    for name, text in (
        ("module.c", CODE),
        ("setup.py", SETUP),
        ("pyproject.toml", make_project("wrong")),
    ):
        (tree / name).write_text(text)
    rungs = ("x86-64-v2", "avx", "avx2")
    lab = make_lab({"nodes": {f"on-{rung}": {"hardware": rung} for rung in rungs}})
    fleet = Fleet(lab.inventory, config=Config(), state_dir=tmp_path / "state", timeout=15)
    plan = fleet.plan([f"wrong @ {tree}"])
    result = fleet.apply(plan)
    assert result.exit_code == 5
    built = {wheel.built_on: wheel for wheel in result.wheels}
    nodes = {node.node: node for node in result.nodes}

    reason, _, below = str(built["on-avx2"].reason).partition("\n")
    assert reason == "The header no_such.h is missing on on-avx2."
    assert "fatal error: no_such.h" in below
    assert "development package" in str(built["on-avx2"].fix)

    reason, _, below = str(built["on-avx"].reason).partition("\n")
    assert reason.startswith("The source uses instructions beyond avx without asking")
    assert "target specific option mismatch" in below
    assert "Switch those kernels off" in str(built["on-avx"].fix)

    assert nodes["on-x86-64-v2"].state == "verify_failed"
    reason = str(nodes["on-x86-64-v2"].reason)
    assert "`import wrong`: ABI mismatch: the symbol nobody_has_this is missing." in reason
