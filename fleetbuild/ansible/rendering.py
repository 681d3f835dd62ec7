"""Templates and vaulted values of an inventory, rendered by Ansible itself.

`ansible-inventory` shows variables as they are written. Where one of them decides how a node is
reached, the few that hold a template go through a playbook that renders them, on no host. Some are
passwords: they come back through an open file without a name, and the tasks' results are empty.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetbuild.ansible._runner import Finished, capture, private_dir
from fleetbuild.ansible.messages import plain, sentence
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
        "no_log": True,
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
    # Where a template of the connection fails, Ansible tells callbacks before it heeds no_log.
    "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.default",
    "ANSIBLE_CALLBACK_PLUGINS": os.devnull,
}


def needs_rendering(value: Any) -> bool:
    """Does a value, or one inside it, hold a template or vaulted text?"""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return "__ansible_vault" in value or any(map(needs_rendering, value.values()))
    return isinstance(value, list) and any(map(needs_rendering, value))


def render(
    source: str, wanted: Mapping[str, Sequence[str]], *, secrets: Secrets | None = None
) -> dict[str, dict[str, Any]]:
    """The values of some hosts' variables: host to names in, host to names and values out."""
    if not wanted:
        return {}
    with private_dir() as private, _nameless() as handed:
        arguments = _arguments(source, wanted, secrets or Secrets(), private)
        env = {**_ENV, "FLEETBUILD_HAND_OVER": str(handed)}
        ended = capture("ansible-playbook", arguments, private=private, env=env, pass_fds=[handed])
        answers = _answers(handed)
    if missing := next((host for host in wanted if host not in answers), None):
        raise _silence(missing, wanted[missing], ended)
    return {
        host: dict(zip(names, _values(host, names, *answers[host]), strict=True))
        for host, names in wanted.items()
    }


@contextmanager
def _nameless() -> Iterator[int]:
    """An open file that is gone with the last process that holds it, even if all are killed."""
    memory = hasattr(os, "memfd_create")
    handle = os.memfd_create("fleetbuild") if memory else _unlinked()
    # Workers write at the same time: whole lines, each at the end.
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)
    try:
        yield handle
    finally:
        os.close(handle)


def _unlinked() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _answers(handed: int) -> dict[str, tuple[str, str]]:
    """What each host's task handed over: values as JSON, or why there are none."""
    with open(os.dup(handed), "rb") as file:  # noqa: PTH123 (a descriptor)
        file.seek(0)
        lines = [json.loads(line) for line in file]
    return {host: (kind, text) for host, kind, text in lines}


def _arguments(
    source: str, wanted: Mapping[str, Sequence[str]], secrets: Secrets, private: Path
) -> list[str]:
    play = write_private(private / "render.json", json.dumps(_PLAY))
    names = write_private(private / "wanted.json", json.dumps({"fleetbuild_wanted": wanted}))
    limit = write_private(private / "limit", "\n".join(wanted))
    (private / "filter_plugins").symlink_to(_FILTERS)  # Ansible looks beside the playbook
    vault = vault_arguments(secrets, private)
    return ["-i", source, "--limit", f"@{limit}", "-e", f"@{names}", *vault, str(play)]


def _values(host: str, names: Sequence[str], kind: str, text: str) -> list[Any]:
    values = json.loads(text) if kind == "values" else None
    if isinstance(values, list) and len(values) == len(names):
        return values
    raise _unrendered(host, names, plain(text))


def _silence(host: str, names: Sequence[str], ended: Finished) -> InventoryError:
    """Ansible stopped before it came to this host."""
    return _unrendered(host, names, sentence(ended.err + ended.out))


def _unrendered(host: str, names: Sequence[str], said: str) -> InventoryError:
    if "ecrypt" in said or "vault" in said.lower():
        return InventoryError(
            f"{host}: {', '.join(names)}: a vaulted value cannot be opened: {_cause(said)}",
            "use the --vault-password-file or --vault-id that it was encrypted with",
        )
    return InventoryError(
        f"{host}: {', '.join(names)} cannot be rendered: {_cause(said)}",
        "mend the template, or set what it needs in the inventory",
    )


def _cause(said: str) -> str:
    """The innermost reason of Ansible's chain of them."""
    undefined = re.findall(r"['\"]?[\w.]+['\"]? is undefined", said)
    return undefined[-1] if undefined else sentence(said.rpartition("<<< caused by >>>")[2] or said)
