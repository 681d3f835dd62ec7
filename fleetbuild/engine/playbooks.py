"""Playbooks as the engine runs them: on one inventory, with values that stay values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetbuild.ansible import PlaybookRun, Secrets, TaskEvent, run_playbook


@dataclass(frozen=True)
class AnsiblePlaybooks:
    """Runs our playbooks with Ansible."""

    inventory: str
    secrets: Secrets
    state_dir: Path
    forks: int

    def __call__(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None],
    ) -> PlaybookRun:
        return run_playbook(
            name,
            inventory=self.inventory,
            limit=list(limit),
            extravars={key: literally(value) for key, value in extravars.items()},
            secrets=self.secrets,
            state_dir=self.state_dir,
            on_event=on_event,
            forks=self.forks,
        )


def literally(value: Any) -> Any:
    """The value, with every text in it marked so that Ansible takes no part of it for a template.

    Some of these texts come from nodes, and a template is a program that runs on the controller.
    """
    if isinstance(value, str):
        return {"__ansible_unsafe": value} if "{" in value else value
    if isinstance(value, Mapping):
        return {key: literally(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literally(item) for item in value]
    return value
