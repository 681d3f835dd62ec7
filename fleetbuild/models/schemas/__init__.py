"""JSON Schemas of fleetbuild.yml, of recipes and of plans, for editors and validators.

The files are generated from the pydantic models by `make docs`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

Schema = Literal["config", "plan", "recipe"]


def schema_path(name: Schema) -> Path:
    """The path of a schema in the installed package."""
    return Path(str(files("fleetbuild.models.schemas").joinpath(f"{name}.schema.json")))


def editor_comment(name: Schema) -> str:
    """The comment by which an editor finds the schema of a YAML file, without any network."""
    return f"# yaml-language-server: $schema={schema_path(name).as_uri()}\n"
