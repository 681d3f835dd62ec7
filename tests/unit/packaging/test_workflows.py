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


def test_actions_are_pinned_by_commit_with_their_version() -> None:
    files = [*WORKFLOWS, ROOT / "action.yml", ROOT / "docs" / "ci.md"]
    used = [
        line.strip()
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if "uses: " in line and "COMMIT" not in line
    ]
    assert len(used) >= 8
    assert [line for line in used if not re.search(r"@[0-9a-f]{40} # v\d", line)] == []


def test_every_make_target_and_script_of_the_workflows_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    assert all((ROOT / name).is_file() for name in re.findall(r"run: (\.ci/\w+)", text))


def test_the_release_attests_the_bills_that_make_dist_writes() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    named = set(re.findall(r"sbom-path: (\S+)", text))
    scripts = "".join((ROOT / ".ci" / name).read_text("utf-8") for name in ("lock", "save-image"))
    assert named == set(re.findall(r"dist/[\w-]+\.cdx\.json", scripts))


def test_ci_has_the_oldest_python_and_runs_the_matrix_of_cores_and_the_core_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    (setup,) = (step for step in jobs["test"]["steps"] if "setup-python" in step.get("uses", ""))
    assert project["requires-python"].removeprefix(">=") in setup["with"]["python-version"].split()
    run = (ROOT / ".ci/run").read_text("utf-8").splitlines()
    assert "step make --no-print-directory test-cores PART=loading" in run
    assert "step make --no-print-directory core" in run
