"""Run the module `release` and check the reply of the node: see plugin_utils/gate.py.

`begun` is the reply to another user, if that one was asked. If that user could write, it is the
result, and the node is not asked again.
"""

from __future__ import annotations

from typing import Any

from ..plugin_utils.gate import guarded

# The first task has told these: a second time, each would be another message or change.
_TOLD = ("changed", "took_over", "warnings", "deprecations", "ansible_facts")


class ActionModule(guarded("normal")):
    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        arguments = dict(self._task.args)
        if "begun" not in arguments:
            return super().run(tmp, task_vars)
        begun = arguments.pop("begun")
        if begun.get("writable"):
            reply = {name: value for name, value in begun.items() if name not in _TOLD}
            return {**reply, "became": False, "login_uid": 0}
        spec = arguments.get("spec") or {}
        login_uid = int(begun.get("user") or spec.get("login_uid") or 0)
        self._task.args = {**arguments, "login_uid": login_uid}
        return {**super().run(tmp, task_vars), "became": True, "login_uid": login_uid}
