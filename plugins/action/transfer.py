"""Send files to a node by the connection alone: see plugins/modules/transfer.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..plugin_utils.replies import path


class ActionModule(ActionBase):
    """Send each file into the folder that its hash names, below a folder of the node."""

    TRANSFERS_FILES = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        folder, files = self._task.args["folder"], self._task.args["files"]
        try:
            path(folder)  # Ansible puts it into commands of sftp, and it comes from the node
        except ValueError:
            raise AnsibleActionFail("The node named a folder that is not a plain path.") from None
        if not self._task.check_mode:
            for file in files:
                self._connection.put_file(file["path"], f"{folder}/{file['sha256']}/{file['file']}")
        return {**result, "changed": bool(files)}
