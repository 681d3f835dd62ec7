"""The pages say what the code does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleetbuild.ansible.connections import connections
from fleetbuild.apply import wave, wiring
from fleetbuild.config import parse_config
from fleetbuild.fleet import TIMEOUT
from fleetbuild.models.config import Hook
from fleetbuild.models.release import ENVIRONMENT_BYTES
from tests.factories.role_modules import plugin

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
TIMED = ("reliability", "rollout", "security")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def test_the_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"run `make docs`: {done.stdout}{done.stderr}"


def test_no_page_is_long() -> None:
    """Generated pages aside; a reader finds the next thing to do on each page."""
    long = {
        page.name: lines
        for page in PAGES
        if "Written by" not in (text := page.read_text())[:2000]
        and (lines := text.count("\n")) > (90 if page.name == "README.md" else 150)
    }
    assert long == {}


def test_commands_copied_from_a_page_run_as_they_stand() -> None:
    """A block of commands has neither prompts nor output."""
    prompts = [
        f"{page}: {line}"
        for page in [*PAGES, *ROOT.glob("roles/*/README.md"), ROOT / "playbooks" / "README.md"]
        for block in re.findall(r"^```(?:sh)?\n(.*?)^```", page.read_text(), re.S | re.M)
        for line in block.splitlines()
        if line.startswith(("$ ", "# $"))
    ]
    assert prompts == []


def test_every_argument_of_a_command_has_a_name() -> None:
    assert "| `` |" not in (ROOT / "docs" / "reference" / "cli.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_times_and_sizes_in_the_pages_match_the_code() -> None:
    silence = wiring._SILENCE_FACTOR * TIMEOUT
    connect = connections({}, silence, Path())["ANSIBLE_TIMEOUT"]
    lease, slowest = wave._LEASE, wave._SLOWEST
    stalled = plugin("plugin_utils.stalls")._PATIENCE
    days = plugin("module_utils.builder.wheel_build").UNUSED / 86400
    assert plugin("module_utils.release_lease").LONGEST == 86400  # a day
    text = " ".join(" ".join((ROOT / f"docs/{page}.md").read_text() for page in TIMED).split())
    for sentence in (
        f"a new connection after {connect} s (`--timeout`), a silent one after {silence:.0f} s",
        f"after twice `--timeout` at most ({silence:.0f} s)",
        f"moves no byte is given up after {stalled:.0f} s",
        f"what never pauses for {stalled:.0f} s",
        f"A lease ends {lease // 60} minutes after its last step",
        f"beyond {lease * slowest // 1_000_000} MB: at {slowest // 1000} kB/s, a day at most)",
        f"with a `timeout` ({Hook.model_fields['timeout'].default} s)",
        f"an empty environment ({ENVIRONMENT_BYTES // 1_000_000} MB)",
        f"the compiler cache stay for {days:.0f} days",
    ):
        assert sentence in text


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("0*.md")}


def test_the_examples_of_your_fleet_are_valid_configuration() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "your-fleet.md").read_text(), re.S)
    assert [parse_config(block).packages for block in blocks] == [("hnswlib==0.8.0",)]


def test_the_configuration_of_your_fleet_comes_beside_an_inventory_that_is_there(
    tmp_path: Path,
) -> None:
    text = (ROOT / "docs" / "your-fleet.md").read_text()
    commands = text.partition("## 2. ")[2].partition("```sh\n")[2].partition("```")[0]
    (tmp_path / "inventory.yml").write_text("mine")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, env={**os.environ, "PATH": programs}, check=True
    )
    assert (tmp_path / "inventory.yml").read_text() == "mine"
    assert (tmp_path / "fleetbuild.yml").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "inventory").glob("*.yml")), ids=lambda p: p.name)
def test_the_example_files_parse(path: Path) -> None:
    assert yaml.safe_load(path.read_text())
