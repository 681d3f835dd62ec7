"""An operator's day, as a script that CI could run: tests/fleet/day/day.sh on real SSH nodes.

It runs the programs of the built wheel, in a clean environment far from the checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from uv import find_uv_bin

from tests.lab import Lab, emulation, runnable

ROOT = Path(__file__).parents[2]
DAY = Path(__file__).parent / "day"


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment that holds the wheel and what it requires."""
    here, uv = tmp_path_factory.mktemp("installed"), find_uv_bin()
    subprocess.run([uv, "build", "-q", "--no-config", "--wheel", "-o", here, ROOT], check=True)
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, here / "venv"], check=True)
    (wheel,) = here.glob("fleetbuild-*.whl")
    into = ["--python", str(here / "venv/bin/python")]
    subprocess.run([uv, "pip", "install", "-q", *into, wheel], check=True, cwd=here)
    return here / "venv" / "bin"


@pytest.mark.skipif("avx2" not in runnable(), reason="this machine's CPU has no AVX2")
def test_from_a_requirements_file_to_a_second_version_and_back(
    make_lab: Callable[[Mapping[str, Any]], Lab], programs: Path, tmp_path: Path
) -> None:
    fleet = yaml.safe_load((DAY / "fleet.yml").read_text())
    if emulation.why_not():
        del fleet["nodes"]["old-2"]["cpu"]  # it only says that it is old
    lab = make_lab(fleet)
    lab.stop("away")
    tmp_path.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    # The emulated node has half of the timeout for some five starts of Python.
    began = time.monotonic()
    lab.exec("old-2", "python3 -c 'import json, ssl, venv'", check=True)
    timeout = max(15, round(15 * (time.monotonic() - began)))
    ran = subprocess.run(
        [DAY / "day.sh", lab.inventory, tmp_path, str(timeout)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, "COLUMNS": "120"},
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr
    assert ran.stdout.endswith("== The day is over\n")
    for node in ("gpu-1", "old-1", "old-2"):
        there = lab.exec(node, "find /opt/fleetbuild -mindepth 1 -not -type d", check=True).stdout
        assert {Path(name).name for name in there.split()} <= {".lock", ".lease"}
