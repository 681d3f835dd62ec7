"""What Ansible itself makes of an inventory directory and of a vaulted value: it is really run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.ansible.messages import messages, sentence
from fleetbuild.errors import InventoryError
from fleetbuild.probe.inventory import read_inventory

NEIGHBOURS = "      earlier: secret-before\n      ansible_user: {}\n      later: secret-after\n"
VAULT = "$ANSIBLE_VAULT;1.1;AES256"
HOST = "all:\n  hosts:\n    h1:\n      ansible_connection: local\n"


def folder(tmp_path: Path, host: str = "") -> Path:
    made = tmp_path / "hosts"
    made.mkdir()
    (made / "hosts.yml").write_text(HOST + host)
    (made / "fleetbuild.yml").write_text("packages: [hnswlib==0.8.0]\nkubernetes: {labels: api}\n")
    return made


def test_fleetbuild_yml_in_an_inventory_directory_is_not_read_as_inventory(tmp_path: Path) -> None:
    inventory = read_inventory(str(folder(tmp_path)))
    assert [node.name for node in inventory.nodes] == ["h1"]
    assert not inventory.warnings


@pytest.mark.parametrize(
    "setting",
    [
        "[inventory]\nignore_patterns = old, tmp$\n",
        "[defaults]\ninventory_ignore_patterns=old\n",
        "",
    ],
    ids=["inventory", "defaults", "environment"],
)
def test_the_users_own_patterns_still_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    hosts = folder(tmp_path)
    (hosts / "old.yml").write_text("all: {hosts: {retired: {}}}\n")
    monkeypatch.chdir(tmp_path)
    if setting:
        (tmp_path / "ansible.cfg").write_text(setting)
    else:
        assert len(read_inventory("hosts").nodes) == 2
        monkeypatch.setenv("ANSIBLE_INVENTORY_IGNORE_REGEX", "old")
    assert [node.name for node in read_inventory("hosts").nodes] == ["h1"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            "!vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        30313233",
            "a vaulted value cannot be",
        ),
        ("!vault nonsense", "a vaulted value cannot be decrypted"),
        ('"{{ ansible_user | nofilter }}"', "'nofilter'"),
    ],
)
def test_an_error_shows_no_neighbouring_lines(tmp_path: Path, value: str, why: str) -> None:
    """They may hold passwords, and the error goes to logs of CI."""
    with pytest.raises(InventoryError) as problem:
        read_inventory(str(folder(tmp_path, NEIGHBOURS.format(value))))
    text = f"{problem.value.message} {problem.value.fix}"
    assert why in text
    assert "packages" not in text
    for word in ("secret-before", "secret-after", "Origin:", "fatal:", "TASK"):
        assert word not in text


VAULTED = "!vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        30313233"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"ansible_become_password": VAULTED}, "ansible_become_password: a vaulted value cannot"),
        (
            {"ansible_become_password": VAULTED, "ansible_ssh_pass": VAULTED},
            "one of ansible_become_password, ansible_ssh_pass: a vaulted value cannot",
        ),
        ({"ansible_user": '"{{ absent }}"'}, "ansible_user cannot be rendered: 'absent' is"),
    ],
)
def test_only_variables_that_can_be_the_cause_are_named(
    tmp_path: Path, values: dict[str, str], named: str
) -> None:
    others = {"ansible_port": '"{{ 20 + 2 }}"', "fleetbuild_python": "\"{{ '3.11' }}\""}
    lines = [f"      {name}: {value}\n" for name, value in {**others, **values}.items()]
    (tmp_path / "h.yml").write_text("all:\n  hosts:\n    h1:\n" + "".join(lines))
    with pytest.raises(InventoryError) as problem:
        read_inventory(str(tmp_path / "h.yml"))
    assert problem.value.message.startswith(f"h1: {named}")


NEWER = """\
[ERROR]: It failed.
Origin: /h.yml:6:21

4   a: local
5   b: hidden
6   c: !vault |
      ^ column 21

<<< caused by >>>

No secret.
"""
OLDER = """\
ERROR! It failed.

The offending line appears to be:

  b: hidden
  c: !vault |
     ^ here
<<< caused by >>> No secret.
"""


@pytest.mark.parametrize("text", [NEWER, OLDER])
def test_source_lines_of_all_versions_are_left_out(text: str) -> None:
    assert messages(text) == ["It failed. <<< caused by >>> No secret."]
    assert "hidden" not in sentence(text.replace("[ERROR]: ", "").replace("ERROR! ", ""))
