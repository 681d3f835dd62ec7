"""What is known about CPUs and GPUs, as YAML: each file says where its rows come from."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml


def load(name: str) -> dict[str, Any]:
    """A data file of this package."""
    document: dict[str, Any] = yaml.safe_load(files(__name__).joinpath(name).read_text("utf-8"))
    return document
