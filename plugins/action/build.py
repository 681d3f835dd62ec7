"""Run the module `build` and check the reply of the node: see plugin_utils/node_module.py."""

from __future__ import annotations

from ..plugin_utils.node_module import NodeModule as ActionModule

__all__ = ["ActionModule"]
