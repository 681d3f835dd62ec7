"""The one gate for what a node answers. Runs inside ansible-playbook, before Ansible acts on it.

Each reply of a module passes the schema of replies.py, its advice becomes a sentence of advice.py,
and its other words are quoted as the node's. Nothing else goes further. A value outside its bounds,
or a key by which Ansible would set variables, fails the node.
A home and a temporary folder that a shell of the node names are checked too: Ansible puts them into
commands of sftp. Fetched files and the output of modules are limited in size.
It checks the modules of the collection in every playbook, by plugins/action, and Ansible's modules
in fleetbuild's own playbooks, by playbooks/action_plugins.
"""

import importlib.util
import inspect
import re
import resource
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins import action

from . import advice, programs, replies
from .stalls import Stalled, watched

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}")
# The most bytes of a file that is fetched. A node may say another size than it sends.
# On this machine itself the module of the task is unpacked within the limit too.
_LARGEST = {".whl": 8 << 30, ".log": 256 << 20, ".sha256": 4 << 20}
_MEMORY = 512 << 20  # for a reply over ssh, while Ansible collects it


def guarded(name: str) -> type:  # noqa: C901 (one class, of small methods)
    """Ansible's own action plugin of this name, with each answer of a node checked."""
    # By path: Ansible loads this very file under the name of its own plugin.
    path = Path(action.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"fleetbuild_guards_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    needed = (
        "_parse_returned_data", "_execute_module", "_remote_expand_user", "_make_tmp_path",
        "_is_pipelining_enabled", "_compute_environment_string", "_low_level_execute_command",
    )  # fmt: skip
    if not all(hasattr(module.ActionModule, method) for method in needed):
        raise AnsibleError("fleetbuild cannot check the replies of nodes with this ansible-core.")

    class ActionModule(module.ActionModule):
        _refusal: dict[str, Any] | None = None
        _asked: tuple[str, dict[str, Any]] = ("", {})

        def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
            limit(name, self._connection.transport, str(self._task.args.get("src", "")))
            try:
                with watched(self._connection, self._host()):
                    result = super().run(tmp, task_vars)
            except Stalled as problem:
                return problem.result()
            except MemoryError:
                self._refuse("more than fleetbuild reads")
            except AnsibleError:  # such as: copy got no answer to its question for the old file
                if self._refusal is None:
                    raise
            return self._refusal or result

        def _execute_module(
            self, module_name: Any = None, module_args: Any = None, *args: Any, **kwargs: Any
        ) -> dict[str, Any]:
            self._asked = (
                str(module_name or self._task.action),
                dict(self._task.args if module_args is None else module_args),
            )
            python = self._known_python(**kwargs)
            if python:
                return self._execute_program(python)
            return super()._execute_module(module_name, module_args, *args, **kwargs)

        def _known_python(self, task_vars: Any = None, wrap_async: bool = False, **_: Any) -> str:
            """Return the node's Python if it is known and this module can run alone, else ""."""
            if self._asked[0] not in programs.NAMES or self._task.delegate_to:
                return ""  # the variable may mean another host, and need values that it lacks
            python = (task_vars or {}).get("ansible_python_interpreter")
            python = str(self._templar.template(python))
            fits = python.startswith("/") and self._is_pipelining_enabled("new", wrap_async)
            return python if fits else ""

        def _execute_program(self, python: str) -> dict[str, Any]:
            name, arguments = self._asked
            arguments = {**arguments, "_ansible_check_mode": self._task.check_mode}
            self._used_interpreter = f"#!{python}"  # for the message if it is missing
            shell, environment = self._connection._shell, self._compute_environment_string()
            command = shell.build_module_command(environment, self._used_interpreter, "").strip()
            program = programs.program(name, arguments)
            said = self._low_level_execute_command(command, in_data=program)
            named = inspect.signature(super()._parse_returned_data).parameters
            return self._parse_returned_data(said, *(["legacy"] if "profile" in named else []))

        def _parse_returned_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            reply = super()._parse_returned_data(*args, **kwargs)
            asked, arguments = self._asked
            asked = "async_wrapper" if self._task.async_val else asked
            own = {"ansible_job_id"} if self._task.async_val else set()
            keys = sorted(key for key in map(str, reply) if _sets_variables(key) and key not in own)
            if keys:
                named = ", ".join(key for key in keys[:3] if _NAME.fullmatch(key))
                return self._refuse(
                    f"{named or 'an Ansible variable'}, by which a node could change variables of"
                    " the run"
                )
            try:
                checked = replies.checked(asked, {"msg": _exception(reply), **reply})
                if "command" in checked:
                    advice.check_packages(checked, arguments)
            except replies.Refused as field:
                return self._refuse(f"a value of {field} that no module of fleetbuild returns")
            parsed = bool(reply.get("_ansible_parsed"))
            return {**_worded(checked, arguments, self._host(), parsed), "_ansible_parsed": parsed}

        def _remote_expand_user(self, path: str, *args: Any, **kwargs: Any) -> str:
            found = super()._remote_expand_user(path, *args, **kwargs)
            return found if found == path else self._plain(found, "home")  # else no node was asked

        def _make_tmp_path(self, *args: Any, **kwargs: Any) -> str:
            return self._plain(super()._make_tmp_path(*args, **kwargs), "temporary folder")

        def _plain(self, path: str, what: str) -> str:
            try:
                return replies.path(path)
            except ValueError:
                self._refuse(f"a {what} that is not a plain path")
                raise AnsibleError(self._refusal["msg"]) from None

        def _refuse(self, what: str) -> dict[str, Any]:
            self._refusal = _refusal(what, self._task.action, self._host())
            return {**self._refusal, "_ansible_parsed": True}

        def _host(self) -> str:
            return self._templar.available_variables["inventory_hostname"]

    return ActionModule


def limit(name: str, transport: str, source: str) -> None:
    """Limit this worker of Ansible, and the ssh and sftp that it starts; it runs one task."""
    if name == "fetch":
        most = _LARGEST.get(Path(source).suffix, _LARGEST[".log"])
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )
    elif transport == "ssh" and sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = used * resource.getpagesize() + _MEMORY
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _worded(
    reply: dict[str, Any], arguments: dict[str, Any], host: str, own: bool
) -> dict[str, Any]:
    """Return a reply with advice in the controller's words, and the node's own words as quotations.

    Without `own` the message is Ansible's, about an answer that it could not read.
    """
    inner = reply.get("verification")
    if isinstance(inner, dict):
        reply = {**reply, "verification": _worded(inner, arguments, host, own)}
    if "fix" in reply:  # an empty one stays in the reply: roles read it
        reply = {**reply, "fix": advice.sentence(reply["fix"], arguments)}
    said = [name for name in ("msg", "reason", "took_over") if own and reply.get(name)]
    return {**reply, **{name: f"{host} says: {reply[name]}" for name in said}}


def _exception(reply: dict[str, Any]) -> str:
    """Return the messages of the exception that ended a module and of its causes.

    Such a reply may have no `msg`: Ansible makes one of the exception.
    """
    problem = reply.get("exception") or ""
    event = getattr(problem, "event", None)
    if event is None:  # an older module: a traceback
        return str(problem).strip().rpartition("\n")[2][-500:]
    messages = []
    while event is not None and len(messages) < 4:
        messages.append(str(event.msg)[-500:])
        event = getattr(event.chain, "event", None)
    return ": ".join(messages)


def _sets_variables(key: str) -> bool:
    return key in ("add_group", "add_host") or key.startswith("ansible_")


def _refusal(what: str, task: str, host: str) -> dict[str, Any]:
    return {
        "failed": True,
        "refused": True,
        "msg": f"{host} answered {task} with {what}. fleetbuild refused the answer and stopped work"
        " on this node.",
        "fix": f"Check {host} for a replaced Python, shell or sshd before using it again.",
    }
