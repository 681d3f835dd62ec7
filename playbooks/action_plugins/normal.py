"""Refuse a module's reply that sets variables. Runs inside ansible-playbook.

Ansible turns `ansible_facts` of any reply into variables, and saves `ansible_stats`, before a
callback sees the result. None of our modules returns such a key, so a node that sends one does not
run our module. An action plugin is the last place before Ansible acts.
Ansible looks beside a playbook first: a module without an action of its own goes through `normal`,
`shell` through `command`, `template` through `copy`.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins import action

# By default Ansible polls its workers a thousand times a second: a tenth of a core for each group
# that builds.
constants.DEFAULT_INTERNAL_POLL_INTERVAL = max(constants.DEFAULT_INTERNAL_POLL_INTERVAL, 0.01)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}")


def guarded(name: str) -> type:
    """Ansible's own action plugin of this name, with each reply of a node checked."""
    # By path: Ansible loads this very file under the name of its own plugin.
    path = Path(action.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"fleetbuild_guards_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module.ActionModule, "_parse_returned_data"):
        raise AnsibleError("fleetbuild cannot check the replies of nodes with this ansible-core.")

    class ActionModule(module.ActionModule):
        _refusal: dict[str, Any] | None = None

        def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
            try:
                result = super().run(tmp, task_vars)
            except AnsibleError:  # such as: copy got no answer to its question for the old file
                if self._refusal is None:
                    raise
            return self._refusal or result

        def _parse_returned_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            reply = super()._parse_returned_data(*args, **kwargs)
            own = {"ansible_job_id"} if self._task.async_val else set()
            keys = sorted(key for key in map(str, reply) if _sets_variables(key) and key not in own)
            if not keys:
                return reply
            host = self._templar.available_variables["inventory_hostname"]
            self._refusal = _refusal(keys, self._task.action, host)
            return {**self._refusal, "_ansible_parsed": True}

    return ActionModule


def _sets_variables(key: str) -> bool:
    return key in ("add_group", "add_host") or key.startswith("ansible_")


def _refusal(keys: list[str], task: str, host: str) -> dict[str, Any]:
    named = ", ".join(key for key in keys[:3] if _NAME.fullmatch(key)) or "an Ansible variable"
    return {
        "failed": True,
        "refused": True,
        "msg": f"{host} answered {task} with {named}, by which a node could change variables of "
        "the run. fleetbuild refused the answer and stopped work on this node.",
        "fix": f"Check {host} for a replaced Python, shell or sshd before using it again.",
    }


ActionModule = guarded("normal")
