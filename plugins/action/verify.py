"""Run the module `verify` and check the reply of the node: see plugin_utils/node_module.py."""

from __future__ import annotations

from typing import Any

from ..plugin_utils.known_failures import explaining
from ..plugin_utils.node_module import NodeModule


class ActionModule(NodeModule):
    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        return super().ask(explaining(arguments, task_vars), task_vars)
