"""Run Ansible in other processes: list inventories, read settings, render values, run playbooks.

Only `_runner` uses ansible-runner, and imports it only to run a playbook.
"""

from fleetbuild.ansible._runner import find_program
from fleetbuild.ansible._watch import sweep
from fleetbuild.ansible.cores import untried_core
from fleetbuild.ansible.kept_inventories import read_once
from fleetbuild.ansible.listing import Listing, list_inventory
from fleetbuild.ansible.playbooks import (
    SILENCE,
    HostRun,
    Playbooks,
    RunPlaybook,
    TaskEvent,
)
from fleetbuild.ansible.rendering import needs_rendering, render
from fleetbuild.ansible.secrets import Secrets
from fleetbuild.ansible.settings import Settings, effective_settings
from fleetbuild.files import ansible_dir

__all__ = [
    "SILENCE",
    "HostRun",
    "Listing",
    "Playbooks",
    "RunPlaybook",
    "Secrets",
    "Settings",
    "TaskEvent",
    "ansible_dir",
    "effective_settings",
    "find_program",
    "list_inventory",
    "needs_rendering",
    "read_once",
    "render",
    "sweep",
    "untried_core",
]
