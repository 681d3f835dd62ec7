"""The sanity check explains a real illegal instruction: one of a CPU that QEMU imitates."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories.role_modules import PLUGINS, plugin

pytestmark = pytest.mark.long
FMA = "float f(float *a) { for (int i = 0; i < 64; i++) a[i] = a[i] * a[1] + a[2]; return *a; }"
CHECK = "# It multiplies\nimport ctypes\nctypes.CDLL('{}').f((ctypes.c_float * 64)())"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release whose library uses FMA, and whose python runs on an imitated CPU ($CPU)."""
    qemu = shutil.which("qemu-x86_64-static")
    assert qemu, "QEMU's user mode is missing. Fix: apt-get install qemu-user-static"
    written, library = tmp_path / "fma.c", tmp_path / "fma.so"
    written.write_text(FMA)
    subprocess.run(
        [
            "gcc",
            "-O3",
            "-ffast-math",
            "-march=x86-64-v3",
            "-shared",
            "-fPIC",
            written,
            "-o",
            library,
        ],
        check=True,
    )
    (tmp_path / "bin").mkdir()
    manifest = {"id": "r1", "group": "cpu-avx2-cp311", "wheels": [], "dependencies": []}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    arguments = plugin("plugin_utils.known_failures").explaining({}, {"inventory_hostname": "n"})
    source = (PLUGINS / "module_utils/release_checks.py").read_text()
    module = plugin("module_utils.release_checks")
    about = {"imports": ["json"], "checks": [CHECK.format(library)], "timeout": 60, "features": []}
    script = module.sanity_script(
        source, {**about, "known_failures": arguments["known_failures"]}, ""
    )
    (tmp_path / "bin/fleetbuild-sanity").write_text(script)
    return tmp_path


@pytest.mark.parametrize(("cpu", "code"), [("Haswell", 0), ("IvyBridge", 7)])
def test_an_illegal_instruction_is_explained(release: Path, cpu: str, code: int) -> None:
    python = release / "bin/python"
    python.write_text(f'#!/bin/sh\nexec qemu-x86_64-static -cpu {cpu} {sys.executable} "$@"\n')
    python.chmod(0o755)
    sanity = [sys.executable, str(release / "bin/fleetbuild-sanity")]
    done = subprocess.run(sanity, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "ok        import json" in done.stdout
    assert ("ok        check: It multiplies" in done.stdout) is (code == 0)
    assert ("FAILED    `It multiplies`: Illegal instruction: " in done.stdout) is (code == 7)
