"""Ansible's `fetch`, with each reply of a node checked: see normal.py."""

from importlib.machinery import SourceFileLoader
from pathlib import Path

_guard = SourceFileLoader("fleetbuild_guard", str(Path(__file__).with_name("normal.py")))
ActionModule = _guard.load_module().guarded("fetch")
