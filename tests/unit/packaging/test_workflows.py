"""The workflows for a hosted CI fit their schema and call what exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_workflows_fit_their_schema() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run(
        [checker, "--builtin-schema", "vendor.github-workflows", *WORKFLOWS],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_target_and_script_of_the_workflows_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    assert all((ROOT / name).is_file() for name in re.findall(r"run: (\.ci/\w+)", text))


def test_the_matrix_holds_both_ends_of_the_supported_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    matrix = jobs["versions"]["strategy"]["matrix"]["include"]
    oldest = project["requires-python"].removeprefix(">=")
    (core,) = (name for name in project["dependencies"] if name.startswith("ansible-core"))
    lowest, below = re.findall(r"2\.(\d+)", core)
    assert matrix[0] == {"python": oldest, "ansible": f"2.{lowest}"}
    assert matrix[-1]["ansible"] == f"2.{int(below) - 1}"
