"""Render templates and vaulted values of an inventory with Ansible.

In: names of variables per host. Out: their values. `ansible-inventory` shows variables unrendered;
the few that decide how a node is reached are rendered by a playbook that connects to no host. Some
are passwords, so they come back through an open file without a name, not through task results.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetbuild.ansible._runner import Finished, capture, private_dir
from fleetbuild.ansible.messages import messages, plain, sentence
from fleetbuild.ansible.secrets import Secrets, vault_arguments, write_private
from fleetbuild.errors import InventoryError

_RENDERED = (
    "lookup('ansible.builtin.vars', *fleetbuild_wanted[inventory_hostname], wantlist=True)"
    " | ansible.builtin.to_json | fleetbuild_hand_over(inventory_hostname, 'values')"
)
_PROBLEM = (
    "ansible_failed_result.msg | string | fleetbuild_hand_over(inventory_hostname, 'problem')"
)
_PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "become": False,
        "tasks": [
            {
                "block": [
                    {"name": "render", "ansible.builtin.debug": {"msg": f"{{{{ {_RENDERED} }}}}"}}
                ],
                "rescue": [
                    {"name": "say why", "ansible.builtin.debug": {"msg": f"{{{{ {_PROBLEM} }}}}"}}
                ],
            }
        ],
    }
]
_FILTERS = Path(__file__).with_name("filter_plugins")
_ENV = {
    "ANSIBLE_INJECT_FACT_VARS": "False",
    "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
    # If a template of the connection fails, callbacks and the log get the text in spite of no_log;
    # with it, ansible-core before 2.19 keeps the reason from fleetbuild, too.
    "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.default",
    "ANSIBLE_CALLBACK_PLUGINS": os.devnull,
    "ANSIBLE_LOG_PATH": os.devnull,
}


def needs_rendering(value: Any) -> bool:
    """Return whether a value contains a template or vaulted text, at any depth."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return "__ansible_vault" in value or any(map(needs_rendering, value.values()))
    return isinstance(value, list) and any(map(needs_rendering, value))


def _is_vaulted(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "__ansible_vault" in value or any(map(_is_vaulted, value.values()))
    return isinstance(value, list) and any(map(_is_vaulted, value))


def render(
    source: str, wanted: Mapping[str, Mapping[str, Any]], *, secrets: Secrets | None = None
) -> dict[str, dict[str, Any]]:
    """Return the rendered values of the wanted variables (host -> name -> unrendered value)."""
    if not wanted:
        return {}
    with private_dir() as private, _unnamed_file() as handed:
        arguments = _arguments(source, wanted, secrets or Secrets(), private)
        env = {**_ENV, "FLEETBUILD_HAND_OVER": str(handed)}
        ended = capture("ansible-playbook", arguments, private=private, env=env, pass_fds=[handed])
        replies = _replies(handed)
    if missing := next((host for host in wanted if host not in replies), None):
        raise _no_reply(missing, wanted[missing], ended)
    return {
        host: dict(zip(unrendered, _values(host, unrendered, *replies[host]), strict=True))
        for host, unrendered in wanted.items()
    }


@contextmanager
def _unnamed_file() -> Iterator[int]:
    """Open a file that disappears with the last process that holds it."""
    memory = hasattr(os, "memfd_create")
    handle = os.memfd_create("fleetbuild") if memory else _unlinked()
    # Workers write at the same time; O_APPEND keeps lines whole.
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)
    try:
        yield handle
    finally:
        os.close(handle)


def _unlinked() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _replies(handed: int) -> dict[str, tuple[str, str]]:
    """Return each host's reply: ("values", JSON) or ("problem", reason)."""
    with open(os.dup(handed), "rb") as file:  # noqa: PTH123 (a descriptor)
        file.seek(0)
        lines = [json.loads(line) for line in file]
    return {host: (kind, text) for host, kind, text in lines}


def _arguments(
    source: str, wanted: Mapping[str, Iterable[str]], secrets: Secrets, private: Path
) -> list[str]:
    play = write_private(private / "render.json", json.dumps(_PLAY))
    lists = {host: list(names) for host, names in wanted.items()}
    names = write_private(private / "wanted.json", json.dumps({"fleetbuild_wanted": lists}))
    limit = write_private(private / "limit", "\n".join(wanted))
    (private / "filter_plugins").symlink_to(_FILTERS)  # Ansible looks beside the playbook
    vault = vault_arguments(secrets)
    return ["-i", source, "--limit", f"@{limit}", "-e", f"@{names}", *vault, str(play)]


def _values(host: str, unrendered: Mapping[str, Any], kind: str, text: str) -> list[Any]:
    values = json.loads(text) if kind == "values" else None
    if isinstance(values, list) and len(values) == len(unrendered):
        return values
    raise _problem(host, unrendered, plain(text))


def _no_reply(host: str, unrendered: Mapping[str, Any], ended: Finished) -> InventoryError:
    """Return the error for a host on which Ansible never ran."""
    found = messages(ended.err) or messages(ended.out)
    # ansible-core before 2.19 prints a task's result and no message.
    results = re.findall(r'^fatal: .*"msg": ("(?:[^"\\]|\\.)*")', ended.out, re.MULTILINE)
    found = found or [json.loads(result) for result in results] or [ended.err + ended.out]
    return _problem(host, unrendered, found[0])


def _problem(host: str, unrendered: Mapping[str, Any], output: str) -> InventoryError:
    """Return the error for a host. Ansible does not say which variable it could not render."""
    if "ecrypt" in output or "vault" in output.lower():
        named = _one_of(unrendered, _is_vaulted)
        return InventoryError(
            f"{host}: {named}: a vaulted value cannot be decrypted: {_cause(output)}",
            "Name the --vault-password-file or --vault-id that it was encrypted with.",
        )
    cause = _cause(output)
    missing = cause.partition(" is undefined")[0].strip("'\"")
    return InventoryError(
        f"{host}: {_one_of(unrendered, lambda value: missing in str(value))} cannot be rendered:"
        f" {cause}",
        "Correct the template, or set the variables that it uses in the inventory.",
    )


def _one_of(unrendered: Mapping[str, Any], may_fail: Callable[[Any], bool]) -> str:
    """Return the name of the variable that may fail; several, if it may be one of them."""
    names = [name for name, value in unrendered.items() if may_fail(value)] or list(unrendered)
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _cause(output: str) -> str:
    """Return the innermost reason of Ansible's error chain."""
    undefined = re.findall(r"['\"]?[\w.]{1,200}['\"]? is undefined", output)
    return (
        undefined[-1]
        if undefined
        else sentence(output.rpartition("<<< caused by >>>")[2] or output)
    )
