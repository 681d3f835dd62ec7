"""docs/recipes.md says what recipes can say, and its examples are recipes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fleetbuild.config import parse_config
from fleetbuild.hardware.data import load
from fleetbuild.recipes import (
    Recipe,
    RecipeInput,
    known_recipes,
    render_checks,
    render_environment,
    render_files,
    render_requires,
    render_settings,
    render_source,
)
from tests.factories.plans import make_target

PAGE = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
RECIPES = [block for block in BLOCKS if not block.startswith("mirrors:")]


def test_every_recipe_key_is_documented() -> None:
    table = PAGE.partition("| key | meaning |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([a-z_]+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M))))
    assert told == set(Recipe.model_fields)


def test_every_template_variable_is_documented() -> None:
    target = make_target("avx")
    told = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert set(RecipeInput(version="1", target=target).variables) <= told


def test_the_documented_mirrors_are_valid_configuration() -> None:
    blocks = [block for block in BLOCKS if block not in RECIPES]
    prefixes = [list(parse_config(block).mirrors) for block in blocks]
    archives = load("nvidia.yml", "fleetbuild.toolchains")["archives"]["address"]
    assert prefixes == [["https://github.com/"], [archives]]


@pytest.mark.parametrize("text", RECIPES)
@pytest.mark.parametrize("cuda", [None, "12.6"])
def test_the_documented_recipes_are_valid(tmp_path: Path, text: str, cuda: str | None) -> None:
    (tmp_path / "mine.yml").write_text(text)
    said = yaml.safe_load(text)
    (tmp_path / "patches").mkdir()
    for patch in said.get("patches", ()):
        (tmp_path / "patches" / patch["file"]).write_text("--- a\n")
    recipe = known_recipes([tmp_path])[said.get("name") or said["extends"]]
    target = make_target("avx", sms=("8.6",) if cuda else ())
    job = RecipeInput(package="p", version="1.0", wheel_version="1.0+x", target=target, cuda=cuda)
    render_environment(recipe, job)
    render_settings(recipe, job)
    render_files(recipe, job)
    render_requires(recipe, job)
    render_source(recipe, "p", "1.0")
    for check in render_checks(recipe, job):
        compile(check, "check", "exec")
