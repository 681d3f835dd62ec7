"""Run the module `release` and check the reply of the node: see plugin_utils/node_module.py.

`begun` is the reply to another user, if that one was asked. If that user could write, it is the
result, and the node is not asked again.
"""

from __future__ import annotations

from typing import Any

from ..plugin_utils.known_failures import explaining
from ..plugin_utils.node_module import NodeModule

# The first task has told these: a second time, each would be another message or change.
_TOLD = ("changed", "took_over", "warnings", "deprecations", "ansible_facts")


class ActionModule(NodeModule):
    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state") == "present":
            arguments = explaining(arguments, task_vars)
        if "begun" not in arguments:
            return super().ask(arguments, task_vars)
        begun = arguments.pop("begun")
        if begun.get("writable"):
            reply = {name: value for name, value in begun.items() if name not in _TOLD}
            return {**reply, "became": False, "login_uid": 0}
        spec = arguments.get("spec") or {}
        login_uid = int(begun.get("user") or spec.get("login_uid") or 0)
        reply = super().ask({**arguments, "login_uid": login_uid}, task_vars)
        return {**reply, "became": True, "login_uid": login_uid}
