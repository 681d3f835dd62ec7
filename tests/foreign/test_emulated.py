"""Wheels on CPUs that lack what they were not built for, by QEMU's user mode.

A rung's flags are right where its wheel runs on the oldest CPU of the rung, and an emulator's
SIGILL for the next rung's wheel shows that this CPU really was asked.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from fleetbuild.hardware.flags import flags
from fleetbuild.hardware.rungs import RUNGS
from tests.fleet.test_apply import SEARCH

pytestmark = [pytest.mark.long, pytest.mark.network]

OLDEST = {"avx": "SandyBridge", "avx2": "Haswell", "x86-64-v2": "Nehalem"}


@pytest.fixture(scope="module")
def qemu() -> str:
    program = shutil.which("qemu-x86_64-static")
    assert program, "QEMU's user mode is missing. Fix: apt-get install qemu-user-static"
    return program


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """hnswlib, built once for each rung with the rung's flags."""
    built = {}
    for rung in OLDEST:
        folder = tmp_path_factory.mktemp(rung)
        spelled = f"-O3 {flags(RUNGS[rung], 'gcc', None)}"
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-cache-dir",
             "--no-binary", "hnswlib", "-w", folder, "hnswlib==0.8.0"],
            env={**os.environ, "CFLAGS": spelled, "CXXFLAGS": spelled, "HNSWLIB_NO_NATIVE": "1"},
            check=True,
        )  # fmt: skip
        (built[rung],) = folder.glob("hnswlib-*.whl")
    return built


@pytest.fixture(scope="module")
def pythons(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An environment for each rung's wheel."""
    made = {}
    for rung, wheel in wheels.items():
        folder = tmp_path_factory.mktemp(f"venv-{rung}")
        venv.create(folder, with_pip=True)
        made[rung] = folder / "bin/python"
        subprocess.run([made[rung], "-m", "pip", "install", "-q", "numpy<2.4", wheel], check=True)
    return made


def search_on(cpu: str, python: Path, qemu: str) -> subprocess.CompletedProcess[str]:
    """Run the search on this CPU. QEMU runs the real interpreter, without the packages."""
    (packages,) = python.parents[1].glob("lib/*/site-packages")
    return subprocess.run(
        [qemu, "-cpu", cpu, python.resolve(), "-c", SEARCH],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("rung", OLDEST)
def test_a_wheel_runs_on_the_oldest_cpu_of_its_rung(
    rung: str, qemu: str, pythons: dict[str, Path]
) -> None:
    done = search_on(OLDEST[rung], pythons[rung], qemu)
    assert done.stdout.startswith("True "), done.stderr[-2000:]


def test_the_wheel_of_the_next_rung_fails_on_that_cpu(qemu: str, pythons: dict[str, Path]) -> None:
    done = search_on(OLDEST["avx"], pythons["avx2"], qemu)
    assert done.returncode in (-signal.SIGILL, 128 + signal.SIGILL), done.stderr[-2000:]
