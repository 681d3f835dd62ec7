"""The built wheel of fleetbuild, in a clean environment far from the checkout, does the job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.fleet.test_apply import source_tree
from tests.lab import Lab

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `fleetbuild` program of a virtual environment that holds only the wheel."""
    here = tmp_path_factory.mktemp("installed")
    uv = find_uv_bin()
    subprocess.run([uv, "build", "-q", "--no-config", "--wheel", "-o", here, ROOT], check=True)
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, here / "venv"], check=True)
    (wheel,) = here.glob("fleetbuild-*.whl")
    into = ["--python", str(here / "venv/bin/python")]
    subprocess.run([uv, "pip", "install", "-q", *into, wheel], check=True, cwd=here)
    return here / "venv/bin/fleetbuild"


def test_the_wheel_runs_the_whole_flow(installed: Path, lab: Lab, tmp_path: Path) -> None:
    def fleetbuild(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed, *words],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
        )

    node = sorted(lab.nodes)[0]
    config = tmp_path / "fleetbuild.yml"
    tree = source_tree(tmp_path / "small")
    config.write_text(f"packages: [small @ {tree}]\ninstall: {{path: /opt/installed}}\n")
    common = (str(lab.inventory), "--config", str(config), "--limit", node)

    planned = fleetbuild("plan", *common)
    assert planned.returncode == 0, planned.stderr
    applied = fleetbuild("apply")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    status = fleetbuild("status", *common, "--json")
    assert status.returncode == 0, status.stderr
    assert node in json.loads(status.stdout)["nodes"]
    manifest = lab.exec(node, "cat /opt/installed/current/manifest.json", check=True).stdout
    assert json.loads(manifest)["verified"] is True
    assert list((tmp_path / ".fleetbuild/manifests").rglob("*.yaml"))
