"""Send files to a node by the connection alone: see plugins/modules/transfer.py."""

from __future__ import annotations

import re
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible puts a path into commands of sftp, and this one comes from the node.
_PLAIN = re.compile(r"(/(?![.]{1,2}(/|$))[A-Za-z0-9_.@+][A-Za-z0-9_.@+-]*)+")


class ActionModule(ActionBase):
    """Send each file into the folder that its hash names, below a folder of the node."""

    TRANSFERS_FILES = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        folder, files = self._task.args["folder"], self._task.args["files"]
        if not _PLAIN.fullmatch(folder):
            raise AnsibleActionFail("The node named a folder that is not a plain path.")
        if not self._task.check_mode:
            for file in files:
                self._connection.put_file(file["path"], f"{folder}/{file['sha256']}/{file['file']}")
        return {**result, "changed": bool(files)}
