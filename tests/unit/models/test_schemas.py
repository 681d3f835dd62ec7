"""The shipped JSON Schemas accept what fleetbuild accepts, and name what it refuses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from fleetbuild.cli import app
from fleetbuild.models.schemas import schema_path

ROOT = Path(__file__).parents[3]
RECIPES = sorted((ROOT / "fleetbuild" / "recipes" / "builtin").glob("*.yml"))


def refused(name: Any, document: Any) -> list[str]:
    schema = json.loads(schema_path(name).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return sorted(".".join(map(str, error.absolute_path)) for error in found)


def test_init_names_the_schema_and_writes_a_valid_file(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0
    text = (tmp_path / "fleetbuild.yml").read_text()
    assert text.splitlines()[0] == (
        f"# yaml-language-server: $schema={schema_path('config').as_uri()}"
    )
    assert refused("config", yaml.safe_load(text)) == []
    # With every default spelled out, as a reader who removes the comment signs gets it.
    lines = [line.removeprefix("# ") for line in text.splitlines()[4:]]
    everything = yaml.safe_load("\n".join(lines))
    assert "rollout" in everything
    assert refused("config", everything) == []


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"package": ["hnswlib==0.8.0"]}, ""),
        ({"rollout": {"serial": "150%"}}, "rollout.serial"),
        ({"rollout": {"serial": -1}}, "rollout.serial"),
        ({"build": {"policy": "never"}}, "build.policy"),
    ],
)
def test_mistakes_in_fleetbuild_yml_are_found(document: dict[str, Any], place: str) -> None:
    assert refused("config", document) == [place]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_builtin_recipes_are_valid(path: Path) -> None:
    assert refused("recipe", yaml.safe_load(path.read_text())) == []


def test_a_recipe_that_extends_another_needs_no_other_keys() -> None:
    assert refused("recipe", {"extends": "hnswlib", "job_memory_gb": 3}) == []
    assert refused("recipe", {"job_memory_gb": 3}) == [""]
    assert refused("recipe", {"extends": "hnswlib", "rungs": ["avx3"]}) == ["rungs.0"]


def test_a_saved_plan_matches_the_schema(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    data = ROOT / "tests" / "unit" / "data"
    arguments = ["plan", str(data / "fleet.yml"), "--facts", str(data / "fleet")]
    options = ["--package", "hnswlib==0.8.0", "--out", str(plan), "--state-dir", str(tmp_path)]
    done = CliRunner().invoke(app, arguments + options)
    assert plan.exists(), done.output
    document = json.loads(plan.read_text())
    assert document["groups"]
    assert refused("plan", document) == []
    assert refused("plan", {**document, "lock": "half"}) == ["lock"]
