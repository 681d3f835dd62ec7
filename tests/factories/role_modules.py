"""Modules of roles, imported by path, as Ansible does, without Ansible."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROLES = Path(__file__).parents[2] / "roles"


def load(path: Path, name: str) -> ModuleType:
    """The module in this file, known by this name to those that import it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
