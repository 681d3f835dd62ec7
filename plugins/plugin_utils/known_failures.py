"""The known failures that a node explains a failed check by: the table known_failures.yml.

In: the arguments of a module that verifies. Out: the same with the table, and with the node's name
for sentences. Read here and not by a role: Ansible would go through each value as a template.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

_TABLE = Path(__file__).with_suffix(".yml")


def explaining(arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
    """Return a module's arguments with the known failures of a run, unless it has others."""
    rows = yaml_load(_TABLE.read_text(encoding="utf-8"))["known_failures"]
    known = [row for row in rows if "run" in row["during"]]
    return {"known_failures": known, "node": task_vars["inventory_hostname"], **arguments}
