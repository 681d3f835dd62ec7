"""Send files to a node by the connection alone: see plugins/modules/transfer.py."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..plugin_utils.gate import guarded

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
        kilobits = int(self._task.args.get("bandwidth") or 0)
        if kilobits:
            self._limit(kilobits)
        for file in [] if self._task.check_mode else files:
            name = file.get("file") or os.path.basename(file["path"])
            target = f"{folder}/{file['sha256']}/{name}"
            if self._writes_as_another_user():
                copied = self._copy(file["path"], target, task_vars)
                if copied.get("failed"):
                    return {**result, **copied}
            else:
                self._connection.put_file(file["path"], target)
        return {**result, "changed": bool(files)}

    def _limit(self, kilobits: int) -> None:
        """Limit what sftp and scp send, beside the options that the user gave them."""
        for name in ("sftp_extra_args", "scp_extra_args"):
            with contextlib.suppress(KeyError):  # a connection without ssh
                given = self._connection.get_option(name) or ""
                self._connection.set_option(name, f"{given} -l {kilobits}".strip())

    def _writes_as_another_user(self) -> bool:
        """Return whether the folder belongs to another user than the one who logs in."""
        if self._connection.become is None:
            return False
        return bool(self.get_become_option("become_user") != self._get_remote_user())

    def _copy(self, path: str, target: str, task_vars: Any) -> dict[str, Any]:
        """Send a file as the user who logs in, and put it there as the other one."""
        task = self._task.copy()
        task.args = {"src": path, "dest": target, "mode": "0644"}
        action = guarded("copy")(
            task, self._connection, self._play_context, self._loader, self._templar,
            self._shared_loader_obj,
        )  # fmt: skip
        copied: dict[str, Any] = action.run(task_vars=task_vars)
        return copied
