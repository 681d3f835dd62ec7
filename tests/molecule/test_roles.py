"""Every role's Molecule scenario converges, is idempotent, and shows what a user would see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.lab import runnable

_ROLES = Path(__file__).parents[2] / "roles"
_SCENARIOS = sorted(path.parent for path in _ROLES.glob("*/molecule/*/molecule.yml"))


def test_every_role_has_a_scenario() -> None:
    roles = {path.name for path in _ROLES.iterdir() if (path / "tasks").is_dir()}
    assert roles == {scenario.parents[1].name for scenario in _SCENARIOS}


@pytest.mark.parametrize(
    "scenario", _SCENARIOS, ids=lambda path: f"{path.parents[1].name}-{path.name}"
)
def test_the_molecule_scenario_passes(scenario: Path, tmp_path: Path) -> None:
    platforms = yaml.safe_load((scenario / "molecule.yml").read_text())["platforms"]
    if lacking := {node["hardware"] for node in platforms} - set(runnable()):
        pytest.skip(f"needs {', '.join(lacking)}; this machine's CPU runs {', '.join(runnable())}")
    programs = Path(sys.executable).parent
    path = f"{programs}:{os.environ['PATH']}"
    # Else Molecule has one folder for each scenario, whichever Python runs it.
    folder = str(tmp_path / "molecule")
    done = subprocess.run(
        [str(programs / "molecule"), "test", "--scenario-name", scenario.name],
        cwd=scenario.parents[1],
        env={
            **os.environ,
            "PATH": path,
            "NO_COLOR": "1",
            "MOLECULE_EPHEMERAL_DIRECTORY": folder,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"molecule test in {scenario}:\n{done.stdout[-12000:]}"
