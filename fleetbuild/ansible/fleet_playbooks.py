"""Run playbooks on one inventory, with extra variables that are never evaluated as templates.

In: a playbook's name, hosts and variables. Out: events, and how the playbook ended on each host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from packaging.version import InvalidVersion, Version

from fleetbuild.ansible import SILENCE, HostRun, Secrets, TaskEvent, run_playbook
from fleetbuild.models import Facts, Node

# Python versions that the modules of every supported ansible-core run under.
_OLDEST, _NEWEST = Version("3.9"), Version("3.14")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")


class Playbooks(Protocol):
    """Runs a playbook on hosts of the inventory; `at_once` is the number of parallel runs."""

    def __call__(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None],
        at_once: int = 1,
    ) -> Mapping[str, HostRun]: ...


@dataclass(frozen=True)
class AnsiblePlaybooks:
    """Runs fleetbuild's playbooks with Ansible."""

    inventory: str
    secrets: Secrets
    state_dir: Path
    forks: int
    interpreters: Mapping[str, str] = field(default_factory=dict)
    silence: float = SILENCE
    stopping: Callable[[], bool] = lambda: False

    def __call__(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None],
        at_once: int = 1,
    ) -> dict[str, HostRun]:
        if self.stopping():  # stop was requested between two playbooks of another thread
            raise KeyboardInterrupt
        return run_playbook(
            name,
            inventory=self.inventory,
            limit=list(limit),
            extravars={key: as_literal(value) for key, value in extravars.items()},
            secrets=self.secrets,
            state_dir=self.state_dir,
            on_event=on_event,
            forks=max(1, self.forks // at_once),
            interpreters=self.interpreters,
            silence=self.silence,
            stopping=self.stopping,
        )


def interpreter_for_modules(node: Node, facts: Facts) -> str | None:
    """Return the Python for Ansible's modules if the inventory does not set one, else None.

    Ansible's own search takes the first name that it finds, even a shim that runs nothing; the
    probe has started each of these. The path becomes a variable, so only plain characters are
    accepted: text from a node must not become a template.
    """
    if "ansible_python_interpreter" in node.variables:
        return None
    usable = (python.path for python in facts.pythons if _runs_modules(python.version))
    return next((path for path in usable if _PLAIN_PATH.fullmatch(path)), None)


def _runs_modules(version: str) -> bool:
    try:
        return _OLDEST <= Version(version) < _NEWEST
    except InvalidVersion:
        return False


def as_literal(value: Any) -> Any:
    """Mark every text in a value as unsafe, so that Ansible does not evaluate it as a template.

    Some texts come from nodes, and a template would run code on the controller.
    """
    if isinstance(value, str):
        return {"__ansible_unsafe": value} if "{" in value else value
    if isinstance(value, Mapping):
        return {key: as_literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_literal(item) for item in value]
    return value
