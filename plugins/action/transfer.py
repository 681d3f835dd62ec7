"""Send files to a node by the connection alone: see plugins/modules/transfer.py."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ansible.errors import (
    AnsibleActionFail,
    AnsibleAuthenticationFailure,
    AnsibleConnectionFailure,
    AnsibleError,
)
from ansible.plugins.action import ActionBase

from ..module_utils import relay
from ..plugin_utils.chain import Chain, Link, plain_address
from ..plugin_utils.gate import guarded, limit
from ..plugin_utils.stalls import Stalled, watched

# Ansible puts a path into commands of sftp, and this one comes from the node.
_PLAIN = re.compile(r"(/(?![.]{1,2}(/|$))[A-Za-z0-9_.@+][A-Za-z0-9_.@+-]*)+")
_SMALL = 4 << 20  # bytes that arrive before nodes could find each other
_PATIENCE = 10.0  # seconds
_CALL = ("_build_command", "_bare_run")  # what Ansible makes a call of sftp from
_RECONNECT = 3  # seconds, in place of Ansible's 10
_SLACK = 60.0  # seconds, to start sftp
# The gate limits the memory for an answer.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError)
_FAILURES = {
    "stopped": "does not run the program that fetches files",
    # That of another user, or one that still gives files: others give way.
    "port": "uses port {} (distribute.peer_port) for something else, or for another run",
    "damaged": "sent bytes with another hash",
    "refused": "refused the connection",
    "silent": "sent too little",
    "unknown": "does not have the files",
    "unwritten": "sent bytes that did not fit on the disk",
    "unreachable": "was not reached",
}


class ActionModule(ActionBase):
    """Send each file into the folder that its hash names, below a folder of the node.

    With `peers`, nodes give the files to each other, and the controller sends what does not arrive.
    """

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        folder, files = _plain(self._task.args["folder"]), self._task.args["files"]
        if self._task.check_mode or not files:
            return {**result, "changed": bool(files)}
        result["patches"] = sum("source" in file for file in files)
        self._files = {file["sha256"]: file["path"] for file in files}
        try:
            with watched(self._connection, task_vars["inventory_hostname"]):
                return self._transfer(result, folder, task_vars)
        except Stalled as problem:
            return {**result, **problem.result()}

    def _transfer(self, result: dict[str, Any], folder: str, task_vars: Any) -> dict[str, Any]:
        files, peers = self._task.args["files"], self._peers()
        self._kilobits = int((peers or self._task.args).get("bandwidth") or 0)
        if self._kilobits:
            self._limit(self._kilobits)
        places = {file["sha256"]: f"{folder}/{file['sha256']}/{_name(file)}" for file in files}
        self._arrivals = places
        foreign = not self._task.args.get("for_login") and self._writes_as_another_user()
        if foreign:  # the user who logs in gets them, and the other one copies them
            own = _plain(self._make_tmp_path().rstrip("/"))
            self._arrivals = {sha256: f"{own}/{sha256}" for sha256 in places}
        if peers:
            result.update(self._receive(peers, task_vars or {}))
        else:
            self._send(self._files)
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

    def _send(self, hashes: Any) -> None:
        files = [(self._files[sha256], self._arrivals[sha256]) for sha256 in hashes]
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

    def _peers(self) -> dict[str, Any]:
        """Return how nodes give these files to each other; empty if they do not."""
        worth = sum(os.path.getsize(path) for path in self._files.values()) > _SMALL
        peers = self._task.args.get("peers") if self._connection.transport == "ssh" else None
        return peers if peers and worth else {}

    def _receive(self, peers: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Get the files from nodes that have or receive them, and give them to later nodes."""
        host = task_vars["inventory_hostname"]
        values = (task_vars.get("fleetbuild_peer_address"), task_vars.get("ansible_host"), host)
        address = next(filter(None, map(self._templar.template, values)))
        chain = Chain(peers["folder"])
        about = (host, plain_address(address), list(self._files))
        link = chain.join(*about)
        serves = False
        try:
            missing, failures = self._relay(peers["port"], chain, link, task_vars, again=True)
            if missing and link.sources and relay.LOST.intersection(failures.values()):
                chain.leave(link)
                link = chain.join(*about, again=True)
                missing, failures = self._relay(peers["port"], chain, link, task_vars)
            runs = "" not in failures
            if link.sources:
                chain.count(given=not missing)
            if not runs:
                chain.end(link, serves=False)
            with self._turn(chain, link, missing):
                self._send(missing)
            serves = runs
        finally:
            chain.end(link, serves=serves)
        if missing and failures:
            return {"not_given": _why(host, link.sources, failures, peers["port"])}
        givers = [name for address, name in link.sources.items() if address not in failures]
        return {"given_by": givers[0]} if givers and not missing else {}

    def _turn(self, chain: Chain, link: Link, missing: list[str]) -> AbstractContextManager[None]:
        """Wait until the controller sends to no other node, for twice the time that this takes."""
        if not self._kilobits or not missing:
            return contextlib.nullcontext()
        size = sum(os.path.getsize(self._files[sha256]) for sha256 in missing)
        return chain.turn(link, _SLACK + 2 * size * 8 / 1000 / self._kilobits)

    def _relay(
        self, port: int, chain: Chain, link: Link, task_vars: dict[str, Any], *, again: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """Run module_utils/relay.py on the node; return what it lacks, and failures by address.

        It runs as the user who logs in, as sftp does. Only known words of its answer are used.
        """
        slowest = relay.PIECE * 8 / 1000 / self._kilobits if self._kilobits else 0
        pace = _PATIENCE + 3 * slowest
        spec = {
            "port": port,
            "token": link.token,
            "sources": link.tokens,
            # Behind a silent node the next one gives up first, and the others see bytes again.
            "patience": pace + link.number / 2,
            # A hostile node could use up a late node's patience with each piece, for days.
            "pace": pace,
            "again": again,
            "files": [
                {"path": self._arrivals[sha256], **chain.pieces(path, sha256)}
                for sha256, path in self._files.items()
            ],
        }
        program = f"{inspect.getsource(relay)}\n\nmain(json.loads({json.dumps(spec)!r}))\n"
        python = self._templar.template(task_vars.get("ansible_python_interpreter")) or ""
        python = python if python.startswith("/") else "/usr/bin/python3"
        limit("transfer", self._connection.transport, "")
        try:
            answer = self._run_program(f"{shlex.quote(python)} -I -", program.encode())
            said = json.loads(answer["stdout"].strip().splitlines()[-1])
            missing = [sha256 for sha256 in self._files if sha256 in said["missing"]]
            known = {**link.sources, "": ""}
            failures = {
                address: word
                for address, word in said["failures"].items()
                if address in known and word in _FAILURES
            }
        except _UNREADABLE:
            return list(self._files), {"": "stopped"}
        if missing and link.sources and not failures:
            failures = {"": "stopped"}
        return missing, failures

    def _run_program(self, command: str, program: bytes) -> Any:
        """Run it; if the connection is lost, once more over a new one, as Ansible copies files."""
        run = partial(self._low_level_execute_command, command, sudoable=False, in_data=program)
        try:
            return run()
        except AnsibleConnectionFailure:
            connection = self._connection
            given = connection.get_option("timeout")
            connection.set_option("timeout", min(given, _RECONNECT))  # the node may hang
            try:
                return run()
            finally:
                connection.set_option("timeout", given)

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


def _why(host: str, sources: dict[str, str], failures: dict[str, str], port: int) -> str:
    """Return why other hosts gave nothing. What this host says of them is quoted as its words."""
    words = {word: text.format(port) for word, text in _FAILURES.items()}
    own = [f"{host} {words[failures['']]}"] if "" in failures else []
    said = "; ".join(f"{sources[at]} {words[word]}" for at, word in failures.items() if at)
    return "; ".join([*own, *([f"{host} says: {said}"] if said else [])])


def _name(file: dict[str, str]) -> str:
    return file.get("file") or os.path.basename(file["path"])


def _plain(path: str) -> str:
    if not _PLAIN.fullmatch(path):
        raise AnsibleActionFail("The node named a folder that is not a plain path.")
    return path
