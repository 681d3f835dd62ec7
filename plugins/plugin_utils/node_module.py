"""Run a module of the collection on a node, and check its reply before anything acts on it.

The module runs as every collection's does, by `_execute_module`. Runs inside ansible-playbook.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from . import advice, replies

# For a reply over ssh, or a file by Ansible's last way, while Ansible collects it. The work for it
# grows with its square.
_MEMORY = 64 << 20


class NodeModule(ActionBase):
    """The action of a module: its result is the node's reply, checked."""

    _supports_async = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        return self.ask(dict(self._task.args), task_vars)

    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run the module with these arguments and return the reply as far as it is valid."""
        name, host = self._task.action.rpartition(".")[2], task_vars["inventory_hostname"]
        is_async = bool(self._task.async_val)
        if self._connection.transport == "ssh":
            limit_memory()
        try:
            with short_errors():
                if is_async and not _is_plain(self._make_tmp_path()):  # Ansible gives it to sftp
                    return refusal("a temporary folder that is not a plain path", name, host)
                reply = self._execute_module(
                    module_name=f"fleetbuild.core.{name}",
                    module_args=arguments,
                    task_vars=task_vars,
                    wrap_async=is_async,
                )
        except MemoryError:
            return refusal("more than fleetbuild reads", name, host)
        return checked_reply(reply, "async_wrapper" if is_async else name, arguments, host)


def checked_reply(
    reply: dict[str, Any], name: str, arguments: dict[str, Any], host: str
) -> dict[str, Any]:
    """Return what a node may have replied to a module: the fields of its schema, each in bounds.

    Its advice becomes a sentence of advice.py, and its other words are quoted as the node's. A
    value out of bounds, or a variable that it would set, fails the node.
    """
    if reply.get("failed") and not reply.get("msg"):
        reply = {**reply, "msg": "The module failed without a reason."}
    try:
        checked = replies.checked(name, reply)
        if "command" in checked:
            advice.check_packages(checked, arguments)
    except replies.Refused as field:
        return refusal(f"a value of {field} that no module of fleetbuild returns", name, host)
    return _worded(checked, arguments, host)


def refusal(what: str, name: str, host: str) -> dict[str, Any]:
    """Return the result of a task whose node answered with something else than a reply."""
    return {
        "failed": True,
        "refused": True,
        "msg": f"{host} answered fleetbuild.core.{name} with {what}. fleetbuild refused the answer"
        " and stopped work on this node.",
        "fix": f"Check {host} for a replaced Python, shell or sshd before using it again.",
    }


@contextmanager
def short_errors() -> Iterator[None]:
    """Bound the text of Ansible's errors: they quote all that a node prints before it exits."""
    try:
        yield
    except AnsibleError as problem:
        is_lost = isinstance(problem, AnsibleConnectionFailure)
        kind = AnsibleConnectionFailure if is_lost else AnsibleError
        raise kind(replies.text(replies.TEXT)(str(problem))) from None


def limit_memory(sent: int = 0) -> None:
    """Let this worker of Ansible use little more than the file that it sends; it runs one task."""
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = _MEMORY + sent + used * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _worded(reply: dict[str, Any], arguments: dict[str, Any], host: str) -> dict[str, Any]:
    """Return a reply with advice in the controller's words, and the node's words as quotations."""
    inner = reply.get("verification")
    if isinstance(inner, dict):
        reply = {**reply, "verification": _worded(inner, arguments, host)}
    if "fix" in reply:  # an empty one stays in the reply: roles read it
        fix = advice.sentence(reply["fix"], arguments)
        reply = {**reply, "fix": fix, "advice": reply["fix"][0] if fix else ""}
    said = [name for name in ("msg", "reason", "took_over") if reply.get(name)]
    return {**reply, **{name: f"{host} says: {reply[name]}" for name in said}}


def _is_plain(path: str) -> bool:
    try:
        return bool(replies.path(path))
    except ValueError:
        return False
