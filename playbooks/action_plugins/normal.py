"""Ansible's action for modules without one of their own, with each reply of a node checked.

The gate itself is plugins/plugin_utils/gate.py. Ansible looks beside a playbook first: a module
without an action of its own goes through `normal`, `shell` through `command`, `template` through
`copy`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from ansible import constants

_UTILS = Path(__file__).resolve().parents[2] / "plugins" / "plugin_utils"

# By default Ansible polls its workers a thousand times a second: a tenth of a core for each group
# that builds.
constants.DEFAULT_INTERNAL_POLL_INTERVAL = max(constants.DEFAULT_INTERNAL_POLL_INTERVAL, 0.01)


def guarded(name: str) -> Any:
    """Ansible's own action plugin of this name, with each answer of a node checked.

    The gate is loaded by path: a playbook's plugin has no package.
    """
    package = "fleetbuild_plugin_utils"
    if package not in sys.modules:
        spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(_UTILS)]
        sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.gate").guarded(name)


ActionModule = guarded("normal")
