"""Tables about CPUs and GPUs, as YAML files that name their sources."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

# libyaml, if installed, takes a tenth of the time, which every command pays.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(name: str, package: str = "fleetbuild.hardware") -> dict[str, Any]:
    """Return a data file of a package, parsed."""
    text = files(package).joinpath("data", name).read_text("utf-8")
    document: dict[str, Any] = yaml.load(text, _LOADER)  # noqa: S506 (it is the safe one)
    return document
