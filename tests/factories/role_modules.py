"""The collection's Python, imported from this checkout by the name that Ansible gives it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).parents[2]
ROLES = CHECKOUT / "roles"
PLUGINS = CHECKOUT / "plugins"
_COLLECTION = "ansible_collections.fleetbuild.core"


def plugin(name: str) -> ModuleType:
    """A file of plugins/: `modules.build`, `module_utils.builder.memory`."""
    for package in ("ansible_collections", "ansible_collections.fleetbuild", _COLLECTION):
        if package not in sys.modules:
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = [str(CHECKOUT)]
    return importlib.import_module(f"{_COLLECTION}.plugins.{name}")


# The parameters of the module `release` for a run without a lease.
ALONE = {
    "controller": "",
    "counter": 0,
    "plan": "",
    "replaces": "",
    "space": 0,
    "lease": 1800,
    "revoked": [],
    "wheels": [],
    "installer": {},
    "manifest": {},
    "staging": None,
    "login_uid": 0,
    "became": True,
    "statement": {},
    "signature": "",
    "withdraw": False,
    "known_failures": [],
    "node": "this node",
}
