"""The torch recipe's checks, answered by the real torch 2.13 for CPUs."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from fleetbuild.recipes import known_recipes
from fleetbuild.recipes.render import RecipeInput, render_checks
from tests.factories.plans import make_target

pytestmark = [pytest.mark.long, pytest.mark.network]
PUBLISHED = "2.13.0+cpu"
# torch's own name is changed for wheels that would have been built for a rung.
RUN = """
import json, sys, torch
torch.__version__, checks = json.load(sys.stdin)
for check in checks:
    exec(compile(check, "<check>", "exec"), {})
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--retries",
        "0",
    ]
    index = ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]  # PyPI's is for CUDA
    subprocess.run([*install, *index, f"torch=={PUBLISHED}", "numpy"], check=True)
    return python


def try_checks(python: Path, isa: str, version: str, kernels: str) -> str:
    """The last words of the checks, where torch may use these kernels at most."""
    given = RecipeInput(
        package="torch", version="2.13.0", wheel_version=version, target=make_target(isa)
    )
    done = subprocess.run(
        [python, "-c", RUN],
        input=json.dumps([version, render_checks(known_recipes()["torch"], given)]),
        env={**os.environ, "ATEN_CPU_CAPABILITY": kernels},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else "passed"


@pytest.mark.parametrize(
    ("isa", "version", "kernels", "says"),
    [
        ("avx", PUBLISHED, "default", "passed"),
        ("avx", PUBLISHED, "avx2", "passed"),
        ("avx2", PUBLISHED, "avx2", "passed"),
        ("avx", f"{PUBLISHED}.avx", "default", "passed"),
        ("avx2", f"{PUBLISHED}.avx2", "avx2", "passed"),
        ("avx", f"{PUBLISHED}.avx", "avx2", "runs its AVX2 kernels here, and avx promises DEFAULT"),
        ("avx2", PUBLISHED, "default", "runs its DEFAULT kernels here, and avx2 promises AVX2"),
    ],
)
def test_the_checks_pass_with_a_real_torch(
    python: Path, isa: str, version: str, kernels: str, says: str
) -> None:
    assert try_checks(python, isa, version, kernels).endswith(says)
