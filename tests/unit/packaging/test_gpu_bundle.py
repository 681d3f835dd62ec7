"""run.sh of the GPU bundle: its parts, and an environment without venv and ensurepip."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import test_gpu
from tests.gpu.bundle import PARTS, script


def test_each_gpu_test_belongs_to_one_part() -> None:
    names = [name for name in vars(test_gpu) if name.startswith("test_")]
    for name in names:
        assert len([part for part, word in PARTS.items() if word in name]) == 1, name
    assert len(names) == len(PARTS)


def test_the_bundle_needs_neither_venv_nor_ensurepip(tmp_path: Path) -> None:
    """uv comes out of its wheel, and makes the environment."""
    (tmp_path / "wheels").mkdir()
    (tmp_path / "run.sh").write_text(script())
    uv = '#!/bin/sh\\necho uv "$@" >>"$0.log"\\n'
    pack = (
        "import sys, zipfile\n"
        "with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n"
        f"    wheel.writestr('uv-1.data/scripts/uv', '{uv}')\n"
    )
    wheel = tmp_path / "wheels" / "uv-1-py3-none-any.whl"
    subprocess.run([sys.executable, "-c", pack, wheel], check=True)
    bare = tmp_path / "python3"
    bare.write_text(
        f'#!/bin/sh\ncase $* in *venv*|*ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"\n'
    )
    bare.chmod(0o755)
    run = [shutil.which("bash") or pytest.skip("no bash"), tmp_path / "run.sh"]
    subprocess.run([*run, "probe"], env={"PYTHON": str(bare), "PATH": "/usr/bin:/bin"}, check=False)
    made, installed = (tmp_path / "uv.log").read_text().splitlines()
    assert made == f"uv venv --quiet --python {bare} {tmp_path}/venv"
    assert "--offline --no-index" in installed
    wrong = subprocess.run([*run, "everything"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "probe, extension, refusal, scatter, compile" in wrong.stdout
