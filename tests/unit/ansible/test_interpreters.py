"""What Ansible's modules run under, where the inventory does not say."""

from __future__ import annotations

import pytest

from fleetbuild.ansible.settings import interpreter_for_modules
from fleetbuild.models import Facts, Login, Node, Python


def node(**variables: str) -> Node:
    return Node(name="a", login=Login(host="a"), variables=variables)


def facts(*versions: str) -> Facts:
    return Facts(
        pythons=tuple(
            Python(path=f"/usr/bin/python{version}", version=version, soabi="cpython-0-x")
            for version in versions
        )
    )


@pytest.mark.parametrize(
    ("versions", "path"),
    [
        (("3.11.2", "3.12.1"), "/usr/bin/python3.11.2"),
        (("3.6.8", "3.15.0", "3.12.1"), "/usr/bin/python3.12.1"),
        (("3.6.8", "nonsense"), None),
        ((), None),
    ],
)
def test_the_first_interpreter_that_ansible_supports(
    versions: tuple[str, ...], path: str | None
) -> None:
    assert interpreter_for_modules(node(), facts(*versions)) == path


def test_an_interpreter_in_the_inventory_takes_precedence() -> None:
    named = node(ansible_python_interpreter="/opt/python")
    assert interpreter_for_modules(named, facts("3.11.2")) is None
