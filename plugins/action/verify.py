"""Run the module `verify` and check the reply of the node: see plugin_utils/gate.py."""

from __future__ import annotations

from ..plugin_utils.gate import guarded

ActionModule = guarded("normal")
