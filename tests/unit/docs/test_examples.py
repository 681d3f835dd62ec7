"""The example inventories mean to Ansible what they mean to a reader."""

from pathlib import Path

import pytest

from fleetbuild import read_inventory

EXAMPLES = Path(__file__).parents[3] / "inventory"


@pytest.mark.parametrize(
    ("name", "nodes", "first"),
    [
        ("local.yml", 1, "this-machine"),
        ("lab.yml", 19, "ws-01"),
        ("cloud.yml", 7, "c5-a"),
        ("windows.yml", 1, "desk-01"),
    ],
)
def test_the_example_inventories_are_read(name: str, nodes: int, first: str) -> None:
    inventory = read_inventory(EXAMPLES / name)
    assert len(inventory.nodes) == nodes
    assert inventory.nodes[0].name == first


def test_templates_and_overrides_of_the_lab() -> None:
    inventory = read_inventory(EXAMPLES / "lab.yml")
    assert inventory["ws-07"].login.host == "ws-07.lab.example.org"
    assert inventory["clx-1"].builder
    assert inventory["k40-1"].skip
