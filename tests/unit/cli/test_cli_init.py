import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from fleetbuild.config import config_model
from fleetbuild.recipes import parse_recipe
from fleetbuild.starter_files import CONFIG
from tests.factories.files import make_sdist

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
    assert run("init", "a/b").exit_code == 0
    assert (here / "a" / "b" / "fleetbuild.yml").exists()


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


def test_init_recipe_drafts_one_from_a_source(run: Run, here: Path) -> None:
    setup = "import os\nfrom torch.utils.cpp_extension import CUDAExtension\nos.getenv('K_SMS')\n"
    make_sdist(here, "kernels", requires='["einops>=1"]', files={"setup.py": setup, "a.cu": ""})
    result = run("init", "recipe", "./kernels-1.0.tar.gz")
    assert result.exit_code == 0, result.stderr
    text = (here / "recipes" / "kernels.yml").read_text()
    assert "setup.py reads these variables: K_SMS." in text
    drafted = yaml.safe_load(text)
    assert drafted["extends"] == "torch-extension"
    assert drafted["cuda"] is True
    assert drafted["requires"] == ["einops>=1"]
    assert parse_recipe(text, "draft").serves("kernels")
    again = run("init", "recipe", "./kernels-1.0.tar.gz")
    assert again.exit_code == 2
    assert "kernels.yml exists already" in again.stderr


def test_a_drafted_recipe_renders_whatever_the_source_says(run: Run, here: Path) -> None:
    files = {"CMakeLists.txt": "enable_language(CUDA)\noption(WITH_AVX2)\n"}
    make_sdist(here, "odd", build='["it\'s ] # odd", "{{ x }}"]', files=files)
    assert run("init", "recipe", "./odd-1.0.tar.gz").exit_code == 0
    drafted = yaml.safe_load((here / "recipes" / "odd.yml").read_text())
    assert "CUDAARCHS" in drafted["environment"]


@pytest.mark.usefixtures("here")
def test_init_recipe_refuses_what_it_cannot_draft(run: Run) -> None:
    for given, said in (
        ((), "needs a package"),
        (("./none.tar.gz",), "does not exist"),
        (("hnswlib @ .",), "has a recipe for hnswlib"),
    ):
        result = run("init", "recipe", *given)
        assert result.exit_code == 2
        assert said in result.stderr
    result = run("init", "folder", "kernels")
    assert result.exit_code == 2
    assert "fleetbuild init recipe kernels" in result.stderr
