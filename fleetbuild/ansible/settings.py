"""Ansible's effective settings: what ansible.cfg and ANSIBLE_* variables change; and its Python.

In: the environment. Out: changed settings by name. In: a node's facts. Out: the Python for modules.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from fleetbuild.ansible._runner import capture, config_files, private_dir
from fleetbuild.ansible.messages import sentence
from fleetbuild.errors import InventoryError

if TYPE_CHECKING:
    from fleetbuild.models import Facts, Node

# Only what differs from Ansible's own defaults: "DEFAULT_REMOTE_USER", "ssh.ssh_common_args".
Settings = Mapping[str, Any]
# Python versions that the modules of every supported ansible-core run under.
_OLDEST, _NEWEST = Version("3.9"), Version("3.14")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")


def effective_settings() -> Settings:
    """Return the settings that ansible.cfg and ANSIBLE_* variables change."""
    env = {name: value for name, value in os.environ.items() if name.startswith("ANSIBLE_")}
    files = config_files()
    if not env and not files:
        return {}
    stamps = tuple((str(path), path.stat().st_mtime_ns) for path in files)
    return _dumped(str(Path.cwd()), stamps, tuple(sorted(env.items())))


@functools.cache
def _dumped(
    _cwd: str, _files: tuple[tuple[str, int], ...], _env: tuple[tuple[str, str], ...]
) -> Settings:
    arguments = ["dump", "--format", "json", "--only-changed", "-t", "all"]
    with private_dir() as private:
        ended = capture("ansible-config", arguments, private=private)
    if ended.code != 0:
        raise InventoryError(
            f"ansible.cfg cannot be read: {sentence(ended.err or ended.out)}",
            "Correct it; this command shows the same error: ansible-config dump --only-changed",
        )
    return flattened(json.loads(ended.out))


def flattened(dump: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the changed settings by name; plugin settings are named PLUGIN.SETTING."""
    changed: dict[str, Any] = {}
    for entry in dump:
        if "name" in entry:
            changed[entry["name"]] = entry.get("value")
        for kind in ("CONNECTION_PLUGINS", "BECOME_PLUGINS"):
            for plugins in entry.get(kind, []):
                for plugin, options in plugins.items():
                    changed |= {f"{plugin}.{one['name']}": one.get("value") for one in options}
    return changed


def interpreter_for_modules(node: Node, facts: Facts) -> str | None:
    """Return the Python for Ansible's modules if the inventory does not set one, else None.

    Ansible's own search takes the first name that it finds, even a shim that runs nothing; the
    probe has started each of these. The path becomes a variable, so only plain characters are
    accepted: text from a node must not become a template.
    """
    if "ansible_python_interpreter" in node.variables:
        return None
    usable = (python.path for python in facts.pythons if _runs_modules(python.version))
    return next((path for path in usable if _PLAIN_PATH.fullmatch(path)), None)


def _runs_modules(version: str) -> bool:
    try:
        return _OLDEST <= Version(version) < _NEWEST
    except InvalidVersion:
        return False
