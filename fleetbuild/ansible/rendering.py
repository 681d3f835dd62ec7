"""Templates and vaulted values of an inventory, rendered by Ansible itself.

`ansible-inventory` shows variables as they are written. Where one of them decides how a node is
reached, the few that hold a template go through a playbook that only shows them, on no host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetbuild.ansible._runner import private_dir, stream
from fleetbuild.ansible.messages import plain, sentence
from fleetbuild.ansible.secrets import Secrets, vault_arguments, write_private
from fleetbuild.errors import InventoryError

_PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "become": False,
        "tasks": [
            {
                "name": "render",
                "ansible.builtin.debug": {
                    "msg": "{{ lookup('ansible.builtin.vars', "
                    "*fleetbuild_wanted[inventory_hostname], wantlist=True) }}"
                },
            }
        ],
    }
]


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
    events: list[dict[str, Any]] = []
    with private_dir() as private:
        arguments = _arguments(source, wanted, secrets or Secrets(), private)
        stream("ansible-playbook", arguments, private=private, on_event=events.append)
    answers = {host: data for event in events for host, data in _answer(event)}
    if missing := next((host for host in wanted if host not in answers), None):
        raise _silence(missing, wanted[missing], events)
    return {
        host: dict(zip(names, _values(host, names, answers[host]), strict=True))
        for host, names in wanted.items()
    }


def _arguments(
    source: str, wanted: Mapping[str, Sequence[str]], secrets: Secrets, private: Path
) -> list[str]:
    play = write_private(private / "render.json", json.dumps(_PLAY))
    names = write_private(private / "wanted.json", json.dumps({"fleetbuild_wanted": wanted}))
    limit = write_private(private / "limit", "\n".join(wanted))
    vault = vault_arguments(secrets, private)
    return ["-i", source, "--limit", f"@{limit}", "-e", f"@{names}", *vault, str(play)]


def _answer(event: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    data = event.get("event_data", {})
    if event.get("event") in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable"):
        return [(data["host"], {"event": event["event"], **data.get("res", {})})]
    return []


def _values(host: str, names: Sequence[str], answer: dict[str, Any]) -> list[Any]:
    values = answer.get("msg")
    if answer["event"] == "runner_on_ok" and isinstance(values, list) and len(values) == len(names):
        return values
    raise _unrendered(host, names, str(values))


def _silence(host: str, names: Sequence[str], events: list[dict[str, Any]]) -> InventoryError:
    """Ansible stopped before it came to this host."""
    said = plain("\n".join(event.get("stdout", "") for event in events))
    return _unrendered(host, names, sentence(said))


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
