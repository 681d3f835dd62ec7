import re
from collections.abc import Callable
from pathlib import Path

import yaml
from typer.testing import Result

from fleetbuild.config import config_model
from fleetbuild.starter_files import CONFIG

Run = Callable[..., Result]


def test_init_writes_what_plan_can_read(run: Run, here: Path) -> None:
    result = run("init")
    assert result.exit_code == 0
    assert "Next: " in result.stdout
    config_model().model_validate(yaml.safe_load((here / "fleetbuild.yml").read_text()))
    hosts = yaml.safe_load((here / "inventory.yml").read_text())["all"]["hosts"]
    assert hosts == {"this-machine": {"ansible_connection": "local"}}


def test_init_overwrites_nothing(run: Run, here: Path) -> None:
    (here / "inventory.yml").write_text("mine")
    result = run("init")
    assert result.exit_code == 2
    assert "inventory.yml exists" in result.stderr
    assert "Remove" not in result.stderr  # it may be the fleet's own inventory
    assert "fix: Name another folder" in result.stderr
    assert not (here / "fleetbuild.yml").exists()
    assert (here / "inventory.yml").read_text() == "mine"


def test_init_makes_its_folder(run: Run, here: Path) -> None:
    result = run("init", "a/my fleet")
    assert result.exit_code == 0
    assert "then run: fleetbuild plan 'a/my fleet/inventory.yml'\n" in result.stdout
    assert (here / "a" / "my fleet" / "fleetbuild.yml").exists()


def test_init_says_where_it_cannot_write(run: Run, here: Path) -> None:
    (here / "file").touch()
    result = run("init", "file/below")
    assert result.exit_code == 2
    assert "fix: Name a folder" in result.stderr


def test_the_commented_file_has_every_key_and_its_default() -> None:
    uncommented = re.sub(r"^# (?=[a-z_]+:|  )", "", CONFIG.split("\n\n", 1)[1], flags=re.M)
    written = yaml.safe_load(uncommented.replace('python: "3.11"', "python: null"))
    expected = config_model()(packages=("hnswlib==0.8.0",)).model_dump(mode="json")
    assert written == expected
