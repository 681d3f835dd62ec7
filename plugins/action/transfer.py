"""Move files to and from a node by the connection alone: see plugins/modules/transfer.py."""

from __future__ import annotations

import getpass
import hashlib
import os
import resource
import shlex
import tempfile
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ..plugin_utils import replies
from ..plugin_utils.node_module import limit_memory, refusal, short_errors
from ..plugin_utils.stalls import Stalled, watched

# The most bytes of a file that is fetched. A node may say another size than it sends.
_LARGEST = {".whl": 8 << 30, ".log": 256 << 20, ".sha256": 4 << 20}
_BY_BATCH = ("sftp_batch_mode", "sftp_extra_args", "ssh_transfer_method")


class ActionModule(ActionBase):
    """Send files into the folders that their hashes name, or fetch files."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        files, wanted = (self._task.args.get(name) or [] for name in ("files", "fetch"))
        if self._task.check_mode or not (files or wanted):
            return {"changed": bool(files or wanted)}
        self._host = task_vars["inventory_hostname"]
        if self._connection.transport == "ssh":
            limit_memory(max((os.path.getsize(f["path"]) for f in files), default=0))
        with short_errors():
            try:
                folder = replies.path(str(self._task.args["folder"]).rstrip("/"))
                return self._fetch(folder, wanted) if wanted else self._send(folder, files)
            except Stalled as problem:
                return problem.result()
            except MemoryError:
                return refusal("more than fleetbuild reads", "transfer", self._host)
            except ValueError:
                return refusal("a folder that is not a plain path", "transfer", self._host)

    def _send(self, folder: str, files: list[dict[str, Any]]) -> dict[str, Any]:
        places = {file["sha256"]: f"{folder}/{file['sha256']}/{_name(file)}" for file in files}
        foreign = not self._task.args.get("for_login") and self._writes_as_another_user()
        # The user who logs in then gets them, and the other one copies them.
        own = replies.path(self._make_tmp_path().rstrip("/")) if foreign else ""
        there = {sha256: f"{own}/{sha256}" for sha256 in places} if own else places
        with watched(self._host):
            self._put([(file["path"], there[file["sha256"]]) for file in files])
        return {"changed": True, **(self._copy(own, places) if own else {})}

    def _put(self, files: list[tuple[str, str]]) -> None:
        """Send files, as (here, there): all by one call of sftp where Ansible uses that."""
        rest = files
        if len(files) > 1 and self._connection.transport == "ssh":
            given = {name: self._connection.get_option(name) for name in _BY_BATCH}
            if given["ssh_transfer_method"] in ("smart", "sftp"):
                rest = [] if self._put_at_once(files, given["sftp_extra_args"] or "") else files
                for name, value in given.items():
                    self._connection.set_option(name, value)
        for here, there in rest:
            self._transfer_file(here, there)

    def _put_at_once(self, files: list[tuple[str, str]], extra: str) -> bool:
        """Have sftp read its commands from a file, and not the one of Ansible."""
        with tempfile.NamedTemporaryFile("w", suffix=".sftp") as commands:
            for here, there in files:
                commands.write(f"put {shlex.quote(here)} {shlex.quote(there)}\n")
            commands.flush()
            # sftp would refuse a password with -b.
            options = (False, f"{extra} -o BatchMode=no -b {shlex.quote(commands.name)}", "sftp")
            for name, value in zip(_BY_BATCH, options, strict=True):
                self._connection.set_option(name, value)
            try:
                self._transfer_file(*files[0])
            except AnsibleConnectionFailure:
                raise
            except AnsibleError:  # such as of a node without sftp: Ansible knows other ways
                return False
        return True

    def _writes_as_another_user(self) -> bool:
        """Return whether the folder belongs to another user than the one who logs in."""
        if self._connection.become is None:
            return False
        is_here = self._connection.transport == "local"
        login = getpass.getuser() if is_here else self.get_connection_option("remote_user")
        return bool(self.get_become_option("become_user") != login)

    def _copy(self, own: str, places: dict[str, str]) -> dict[str, Any]:
        """Copy files of the user who logs in to their places, as the other user."""
        sent = " ".join(shlex.quote(f"{own}/{sha256}") for sha256 in places)
        # Who does not know a hash finds no file there.
        readable = f"chmod 711 {shlex.quote(own)} && chmod 644 {sent}"
        copies = " && ".join(
            f"cp {shlex.quote(f'{own}/{sha256}')} {shlex.quote(place)}"
            f" && chmod 644 {shlex.quote(place)}"
            for sha256, place in places.items()
        )
        for command, sudoable in ((readable, False), (copies, True)):
            done = self._low_level_execute_command(command, sudoable=sudoable)
            if done["rc"] != 0:
                said = replies.text(replies.SHORT)(done["stderr"].strip() or done["stdout"].strip())
                return {"failed": True, "msg": f"{self._host} says: {said}"}
        return {}

    def _fetch(self, folder: str, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        """Fetch files into a folder of the controller."""
        dest, lacking, changed = self._task.args["dest"], [], False
        os.makedirs(dest, exist_ok=True)
        for file in wanted:
            there = replies.path(f"{folder}/{file['path']}")
            here = os.path.join(dest, os.path.basename(there))
            before = _sha256(here)
            if before and before == file.get("sha256"):
                continue
            try:
                self._fetch_file(there, here)
            except AnsibleConnectionFailure:
                raise
            except (AnsibleError, OSError, MemoryError) as problem:
                if not file.get("optional"):
                    why = _short(problem) or "it is too large for a node without sftp and scp."
                    return {"failed": True, "msg": f"{there} was not fetched: {why}"}
                lacking.append(file["path"])
                continue
            found = _sha256(here)
            if file.get("sha256") not in (None, found):
                return {"failed": True, "msg": f"{there} arrived damaged: its sha256 differs."}
            changed = changed or found != before
        return {"changed": changed, "lacking": lacking}

    def _fetch_file(self, there: str, here: str) -> None:
        most = _LARGEST.get(os.path.splitext(there)[1], _LARGEST[".sha256"])
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        with watched(self._host, fetches=True):
            self._connection.fetch_file(there, here)


def _short(problem: BaseException) -> str:
    return str(replies.text(replies.TEXT)(str(problem)))


def _name(file: dict[str, str]) -> str:
    return file.get("file") or os.path.basename(file["path"])


def _sha256(path: str) -> str:
    """Return the hash of a file; empty if the file is missing."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
