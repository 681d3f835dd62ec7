"""A release of two packages, one built against the other, by real builds on this machine.

The lower one comes from a git repository with a submodule, by way of a mirror; the upper one
imports it while it is built, and its recipe brings a file, a patch and a setting.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from fleetbuild import Event, Fleet, Plan, Result
from tests.factories.files import git, make_repository

pytestmark = pytest.mark.network

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "{backend}"
{path}
[project]
name = "{name}"
version = "{version}"
dependencies = {needs}
[tool.setuptools]
py-modules = []
"""
CODE = """\
#include <Python.h>
{includes}
#define ADD 0
static PyObject *answer(PyObject *self, PyObject *args) {{ return PyLong_FromLong({value} + ADD); }}
static PyMethodDef methods[] = {{{{"answer", answer, METH_NOARGS, 0}}, {{0}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{module}", 0, -1, methods}};
PyMODINIT_FUNC PyInit_{module}(void) {{ return PyModule_Create(&module); }}
"""
BASE_SETUP = """\
from setuptools import Extension, setup

setup(ext_modules=[Extension("fb_base", ["fb_base.c"], include_dirs=["third_party/forty"])])
"""
# It cannot be asked anything where the lower package is not.
UPPER_SETUP = """\
import os

import fb_base
import packaging
from setuptools import Extension, setup

value = fb_base.answer() + int(open(os.environ["ONE"]).read())
setup(ext_modules=[Extension("fb_upper", ["fb_upper.c"], define_macros=[("BASE", str(value))])])
"""
# setuptools' own backend, which also shows what settings it was given.
BACKEND = """\
from setuptools import build_meta
from setuptools.build_meta import *


def build_wheel(directory, config_settings=None, metadata_directory=None):
    print("given", config_settings)
    return build_meta.build_wheel(directory, None, metadata_directory)
"""
ZIP_SETUP = """\
from ctypes.util import find_library

from setuptools import Extension, setup

link = [f"-l:{find_library('bz2')}"]
setup(ext_modules=[Extension("fb_zip", ["fb_zip.c"], extra_link_args=link)])
"""
PATCH = """\
--- a/fb_upper.c
+++ b/fb_upper.c
@@ -1,4 +1,4 @@
 #include <Python.h>

-#define ADD 0
+#define ADD 1 /* {{ kept }} */
 static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(BASE + ADD); }
""".replace("\n\n", "\n \n", 1)
RECIPES = {
    "base.yml": """
        name: base
        packages: [fb-base]
        rungs: [x86-64, armv8]
        source: {git: "https://forge.invalid/base"}
        requires: [packaging]
        build_requirements: [setuptools, wheel]
        import_names: [fb_base]
        """,
    "zip.yml": """
        name: zip
        packages: [fb-zip]
        rungs: [x86-64, armv8]
        libraries: bundle
        """,
    "upper.yml": """
        name: upper
        packages: [fb-upper]
        rungs: [x86-64, armv8]
        requires: []
        built_against: [fb-base]
        environment: {ONE: "{{ files }}/one.txt"}
        files: {one.txt: "1"}
        patches: [{file: add.patch, when: "version == '2.0'"}]
        config_settings: {where: "{{ files }}"}
        checks: ["import fb_upper; assert fb_upper.answer() == 42, fb_upper.answer()"]
        """,
}


ZIP_CODE = CODE.replace("#define ADD", "int BZ2_bzlibVersion();\n#define ADD")
BZ2 = "(BZ2_bzlibVersion() != 0)"


class Made(NamedTuple):
    """The release, as it was planned and applied."""

    site: Path
    plan: Plan
    result: Result
    told: list[Event]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def project(name: str, version: str, needs: str, *, own_backend: bool = False) -> str:
    backend = "backend" if own_backend else "setuptools.build_meta"
    path = 'backend-path = ["."]' if own_backend else ""
    return PYPROJECT.format(name=name, version=version, needs=needs, backend=backend, path=path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    site = tmp_path_factory.mktemp("built-against")
    make_repository(site / "forge" / "forty", {"forty.h": "#define FORTY 40\n"})
    base = make_repository(
        site / "forge" / "base",
        {
            "pyproject.toml": project("fb-base", "1.0", '["packaging"]'),
            "setup.py": BASE_SETUP,
            "fb_base.c": CODE.format(
                module="fb_base", value="FORTY", includes='#include "forty.h"'
            ),
        },
    )
    git(base, "submodule", "--quiet", "add", "../forty", "third_party/forty")
    git(base, "commit", "-q", "-m", "two")
    git(base, "tag", "v1.0")
    write(
        site,
        {
            "upper/pyproject.toml": project("fb-upper", "2.0", '["fb-base>=1"]', own_backend=True),
            "upper/setup.py": UPPER_SETUP,
            "upper/backend.py": BACKEND,
            "upper/fb_upper.c": CODE.format(module="fb_upper", value="BASE", includes=""),
            "zip/pyproject.toml": project("fb-zip", "1.0", "[]"),
            "zip/setup.py": ZIP_SETUP,
            "zip/fb_zip.c": ZIP_CODE.format(module="fb_zip", value=BZ2, includes=""),
            "recipes/patches/add.patch": PATCH,
            "fleetbuild.yml": f"mirrors: {{'https://forge.invalid/': '{site.as_uri()}/forge/'}}\n"
            "packages: [fb-upper @ ./upper, fb-base==1.0, fb-zip @ ./zip]\n"
            f"install: {{path: {site}/opt}}\n",
            "inventory.yml": "all: {hosts: {here: {ansible_connection: local, "
            f"ansible_python_interpreter: {sys.executable}}}}}}}\n",
            **{f"recipes/{name}": text for name, text in RECIPES.items()},
        },
    )
    told: list[Event] = []
    fleet = Fleet(site / "inventory.yml", state_dir=site / "state")
    plan = fleet.plan()
    assert plan.lock == "complete", plan.lock_problem
    result = fleet.apply(plan, on_event=told.append)
    reasons = [wheel.reason for wheel in result.wheels] + [node.reason for node in result.nodes]
    assert result.exit_code == 0, reasons
    return Made(site, plan, result, told)


def wheels(made: Made) -> dict[str, zipfile.ZipFile]:
    return {each.package: zipfile.ZipFile(str(each.file)) for each in made.result.wheels}


def test_the_base_wheel_is_stored_before_the_dependent_build_starts(made: Made) -> None:
    steps = [
        (event.stage, event.package)
        for event in made.told
        if event.package in ("fb-base", "fb-upper")
        and event.state == "ok"
        and event.stage in ("build", "audit")
    ]
    assert steps == [
        ("build", "fb-base"),
        ("audit", "fb-base"),
        ("build", "fb-upper"),
        ("audit", "fb-upper"),
    ]


def test_the_dependent_wheel_pins_the_base_wheel(made: Made) -> None:
    upper, base, _ = made.plan.groups[0].wheels
    name = f"fb_upper-{upper.wheel_version}.dist-info/METADATA"
    lines = wheels(made)["fb-upper"].read(name).decode().splitlines()
    assert [line for line in lines if line.startswith("Requires-Dist")] == [
        f"Requires-Dist: fb-base=={base.wheel_version}"
    ]
    assert upper.built_against == (base.artifact_key,)
    assert base.source is not None
    assert base.source.url.startswith("git+https://forge.invalid/base@")


def test_both_built_wheels_work_together(made: Made) -> None:
    python = made.site / "opt" / "current" / "bin" / "python"
    modules = ("fb_base", "fb_upper", "fb_zip")
    ask = f"import {', '.join(modules)}; print({', '.join(f'{m}.answer()' for m in modules)})"
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["40", "42", "1"]
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        subprocess.run([uv, "pip", "check", "--python", python], check=True)


def test_settings_reach_the_backend(made: Made) -> None:
    upper = made.plan.groups[0].wheels[0]
    log = (made.site / "state" / "incoming" / str(upper.artifact_key) / "build.log").read_text()
    assert "given {'where': '" in log
    assert "/files'}" in log


def test_libraries_of_the_system_are_in_the_wheel(made: Made) -> None:
    names = wheels(made)["fb-zip"].namelist()
    assert any(name.startswith("fb_zip.libs/libbz2") for name in names), names


def test_pip_refuses_another_variant_of_the_base_wheel(made: Made, tmp_path: Path) -> None:
    upper, base, _ = made.plan.groups[0].wheels
    file = next(each.file for each in made.result.wheels if each.package == "fb-upper")
    stem = "fb_base-1.0+cpu.other"
    with zipfile.ZipFile(tmp_path / f"{stem}-py3-none-any.whl", "w") as other:
        metadata = "Metadata-Version: 2.1\nName: fb-base\nVersion: 1.0+cpu.other\n"
        other.writestr(f"{stem}.dist-info/METADATA", metadata)
        other.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        other.writestr(f"{stem}.dist-info/RECORD", "")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run"]
    done = subprocess.run(
        [*pip, "--ignore-installed", "--no-index", "--find-links", tmp_path, str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert f"fb-base=={base.wheel_version}" in done.stderr
    assert upper.wheel_version in str(file)


def test_a_second_plan_builds_nothing(made: Made) -> None:
    again = Fleet(made.site / "inventory.yml", state_dir=made.site / "state").plan()
    assert (again.summary.wheels_to_build, again.summary.nodes_to_change) == (0, 0)
    assert [wheel.action for wheel in again.groups[0].wheels] == ["reuse"] * 3
