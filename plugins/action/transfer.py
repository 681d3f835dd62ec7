"""Send files to a node by the connection alone: see plugins/modules/transfer.py."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from typing import Any

from ansible.errors import (
    AnsibleActionFail,
    AnsibleAuthenticationFailure,
    AnsibleError,
)
from ansible.plugins.action import ActionBase

from ..plugin_utils.gate import guarded
from ..plugin_utils.stalls import Stalled, watched

# Ansible puts a path into commands of sftp, and this one comes from the node.
_PLAIN = re.compile(r"(/(?![.]{1,2}(/|$))[A-Za-z0-9_.@+][A-Za-z0-9_.@+-]*)+")
_CALL = ("_build_command", "_bare_run")  # what Ansible makes a call of sftp from


class ActionModule(ActionBase):
    """Send each file into the folder that its hash names, below a folder of the node."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        folder, files = _plain(self._task.args["folder"]), self._task.args["files"]
        if self._task.check_mode or not files:
            return {**result, "changed": bool(files)}
        self._files = {file["sha256"]: file["path"] for file in files}
        try:
            with watched(self._connection, task_vars["inventory_hostname"]):
                return self._transfer(result, folder, task_vars)
        except Stalled as problem:
            return {**result, **problem.result()}

    def _transfer(self, result: dict[str, Any], folder: str, task_vars: Any) -> dict[str, Any]:
        files = self._task.args["files"]
        kilobits = int(self._task.args.get("bandwidth") or 0)
        if kilobits:
            self._limit(kilobits)
        places = {file["sha256"]: f"{folder}/{file['sha256']}/{_name(file)}" for file in files}
        self._arrivals = places
        foreign = not self._task.args.get("for_login") and self._writes_as_another_user()
        if foreign:  # the user who logs in gets them, and the other one copies them
            own = _plain(self._make_tmp_path().rstrip("/"))
            self._arrivals = {sha256: f"{own}/{sha256}" for sha256 in places}
        self._send()
        for sha256 in places if foreign else ():
            copied = self._copy(self._arrivals[sha256], places[sha256], task_vars)
            if copied.get("failed") or copied.get("unreachable"):
                return {**result, **copied}
        return {**result, "changed": True}

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

    def _send(self) -> None:
        files = [(path, self._arrivals[sha256]) for sha256, path in self._files.items()]
        arrived = self._send_at_once(files) if len(files) > 1 else 0
        for here, there in files[arrived:]:
            self._connection.put_file(here, there)

    def _send_at_once(self, files: list[tuple[str, str]]) -> int:
        """Send files by one call of sftp; return how many, from the first, have arrived.

        `put_file` makes a call for each file, tries other ways, too, and explains failures.
        """
        ssh = self._connection
        if ssh.transport != "ssh" or not all(hasattr(ssh, name) for name in _CALL):
            return 0
        method = ssh.get_option("ssh_transfer_method")
        if method is None:  # ansible-core 2.16, if the user has not set it
            method = ssh.get_option("scp_if_ssh")
        if method not in ("smart", "sftp"):
            return 0
        ssh.host = ssh.get_option("host") or self._play_context.remote_addr
        command = ssh._build_command(ssh.get_option("sftp_executable"), "sftp", f"[{ssh.host}]")
        batch = "".join(f"put {shlex.quote(here)} {shlex.quote(there)}\n" for here, there in files)
        try:
            code, said, _ = ssh._bare_run(command, batch.encode(), checkrc=False)
        except (AnsibleAuthenticationFailure, Stalled):
            # A second attempt with the same password could lock the account, or last as long.
            raise
        except AnsibleError:
            return 0
        # sftp says each command before it does it, and ends with the first that fails.
        begun = sum(line.startswith(b"sftp> put ") for line in said.splitlines())
        return max(0, begun - 1) if code else len(files)

    def _copy(self, path: str, target: str, task_vars: Any) -> dict[str, Any]:
        """Copy a file of the user who logs in to its place, as the other user."""
        self._fixup_perms2([os.path.dirname(path), path], execute=False)
        task = self._task.copy()
        task.args = {"src": path, "dest": target, "remote_src": True, "mode": "0644"}
        action = guarded("copy")(
            task, self._connection, self._play_context, self._loader, self._templar,
            self._shared_loader_obj,
        )  # fmt: skip
        copied: dict[str, Any] = action.run(task_vars=task_vars)
        return copied


def _name(file: dict[str, str]) -> str:
    return file.get("file") or os.path.basename(file["path"])


def _plain(path: str) -> str:
    if not _PLAIN.fullmatch(path):
        raise AnsibleActionFail("The node named a folder that is not a plain path.")
    return path
