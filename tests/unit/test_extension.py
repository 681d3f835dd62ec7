"""Extensions of other packages: how the core finds them, and what it says of a broken one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fleetbuild.config import parse_config
from fleetbuild.errors import ConfigError
from tests.factories.command_line import run_fleetbuild

CODE = """
from pydantic import Field
import typer
from fleetbuild.extension import Extension
from fleetbuild.models._base import Frozen

class Section(Frozen):
    colour: str = Field("red", description="a colour")

def paint(*, config: str = typer.Option("fleetbuild.yml")) -> None:
    \"\"\"Paint the nodes.\"\"\"
    from fleetbuild import load_config
    print("painted", load_config(config).section(Section).colour)

class Paint(Extension):
    def sections(self):
        return {"paint": Section}
    def commands(self):
        return (paint,)

extension = Paint()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package that has an entry point for an extension."""
    (tmp_path / "stranger.py").write_text(CODE)
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fleetbuild.extensions]\npaint = stranger:extension\n")
    (tmp_path / "fleetbuild.yml").write_text("paint: {colour: blue}\n")
    return tmp_path


def fleetbuild(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{site}:{Path(__file__).parents[2]}"
    return run_fleetbuild(*arguments, here=site, code=None, PYTHONPATH=path)


def test_an_installed_package_adds_a_command_and_a_section(site: Path) -> None:
    assert "Paint the nodes." in fleetbuild(site, "--help").stdout
    assert fleetbuild(site, "paint").stdout == "painted blue\n"


def test_a_mistake_in_the_section_of_an_extension_is_named_with_its_place(site: Path) -> None:
    (site / "fleetbuild.yml").write_text("paint: {color: blue}\n")
    (site / "inventory.yml").write_text("all: {hosts: {a: }}\n")
    run = fleetbuild(site, "plan", "inventory.yml", "--config", "fleetbuild.yml")
    assert run.returncode == 2
    assert "unknown key 'paint.color'" in run.stderr


def test_a_broken_extension_is_an_error_with_its_package(site: Path) -> None:
    (site / "stranger.py").write_text("1 / 0\n")
    run = fleetbuild(site, "--help")
    assert run.returncode == 2
    assert "The extension paint cannot be loaded: ZeroDivisionError" in run.stderr
    assert "uninstall stranger" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_command_of_a_group_that_is_not_there_is_an_error_with_its_module(site: Path) -> None:
    (site / "stranger.py").write_text(
        CODE.replace("paint,)", "paint_wall,)").replace("def paint(", "def paint_wall(")
    )
    run = fleetbuild(site, "--help")
    assert run.returncode == 2
    assert "has the command paint_wall, but not its group paint" in run.stderr
    assert "uninstall the package of stranger" in run.stderr


def test_a_section_that_no_extension_has_is_an_unknown_key() -> None:
    with pytest.raises(ConfigError, match="unknown key 'paint'"):
        parse_config("paint: {colour: blue}")


def test_a_section_does_not_replace_a_key_of_the_core(site: Path) -> None:
    code = (site / "stranger.py").read_text().replace('"paint": Section', '"build": Section')
    (site / "stranger.py").write_text(code)
    run = fleetbuild(site, "paint")
    assert run.returncode != 0
    assert "An extension adds build: to fleetbuild.yml" in run.stderr
