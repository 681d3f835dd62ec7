"""The collection uses only such private names of Ansible as collections everywhere use.

Each other name ties users to one version of Ansible. A name is private if it begins with an
underscore, and Ansible's if a class that plugins or modules get from it has it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.action import ActionBase
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.connection.ssh import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar

from tests.factories.role_modules import CHECKOUT, PLUGINS

# With a well-known collection's action plugin that uses it.
USED = {
    "_task": "ansible.posix.patch",
    "_connection": "ansible.posix.patch",
    "_execute_module": "ansible.posix.patch",
    "_transfer_file": "ansible.posix.patch",
    "_make_tmp_path": "ansible.windows.win_copy",
    "_low_level_execute_command": "community.general.iptables_state",
}
SET = {"_supports_async": "community.general.iptables_state"}
_CLASSES = (
    ActionBase, AnsibleModule, Connection, ConnectionBase, PlayContext, ShellModule, Task, Templar,
)  # fmt: skip


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def names_in(tree: ast.AST) -> set[str]:
    """Return the attributes that code names: self._task."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def of_ansible() -> set[str]:
    """Return Ansible's private names, also the ones that only its code gives to an object."""
    files = [Path(__import__(c.__module__, fromlist=["x"]).__file__ or "") for c in _CLASSES]
    within = {name for file in files for name in names_in(ast.parse(file.read_text()))}
    return set(filter(private, within | {name for each in _CLASSES for name in dir(each)}))


def problems(source: str, known: set[str]) -> Iterator[str]:
    """Yield what a file uses, overrides or imports of Ansible's private names, and may not."""
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name in names_in(tree) & known - own - USED.keys():
        yield f"uses {name}"
    for part in ast.walk(tree):
        if isinstance(part, ast.ImportFrom) and (part.module or "").startswith("ansible"):
            named = [*(part.module or "").split("."), *(alias.name for alias in part.names)]
            yield from (f"imports {name}" for name in named if private(name))
            if (part.module or "").startswith("ansible.plugins.action."):
                yield f"imports {part.module}"
        if isinstance(part, ast.ClassDef) and part.bases:
            defined = {f.name for f in part.body if isinstance(f, ast.FunctionDef)}
            targets = [t for a in part.body if isinstance(a, ast.Assign) for t in a.targets]
            defined |= {target.id for target in targets if isinstance(target, ast.Name)}
            yield from (f"overrides {n}" for n in defined & set(dir(ActionBase)) - SET.keys()
                        if private(n))  # fmt: skip


@pytest.mark.parametrize("file", sorted(PLUGINS.rglob("*.py")), ids=lambda file: file.stem)
def test_a_plugin_uses_and_overrides_no_other_private_name(file: Path) -> None:
    assert not list(problems(file.read_text(), of_ansible()))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("self._connection._bare_run()", "uses _bare_run"),
        ("self._templar.template(x)", "uses _templar"),
        ("class A(ActionBase):\n def _execute_module(self): 1", "overrides _execute_module"),
        ("class A(ActionBase):\n _parse_returned_data = 1", "overrides _parse_returned_data"),
        ("from ansible._internal import x", "imports _internal"),
        ("from ansible.plugins.action.copy import ActionModule", "imports ansible.plugins.action."),
    ],
)
def test_another_private_name_is_found(source: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(source, of_ansible()))


def test_every_listed_name_is_used() -> None:
    """A name that leaves the code leaves this list too."""
    text = "".join(file.read_text() for file in PLUGINS.rglob("*.py"))
    assert all(re.search(rf"\b{name}\b", text) for name in (*USED, *SET))


def test_roles_and_playbooks_name_none() -> None:
    files = [*CHECKOUT.glob("roles/*/*/*.yml"), *CHECKOUT.glob("playbooks/*.yml")]
    assert len(files) > 20
    for file in files:
        assert not re.findall(r"\b_ansible_\w+|\bansible[.]legacy\b", file.read_text()), file
    assert not [path for path in CHECKOUT.glob("*/*_plugins") if path.parts[-2] != "tests"]


def test_the_package_imports_nothing_of_ansible() -> None:
    for file in (CHECKOUT / "fleetbuild").rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text())):
            named = [a.name for a in part.names] if isinstance(part, ast.Import) else []
            named += [part.module or ""] if isinstance(part, ast.ImportFrom) else []
            assert not [name for name in named if name.split(".")[0] == "ansible"], file
