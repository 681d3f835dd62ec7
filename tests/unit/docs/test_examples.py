"""The example inventories are read as they look, and each example fleet is planned."""

import re
from pathlib import Path

import pytest

from fleetbuild import Fleet, read_inventory
from fleetbuild.models import Plan

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "inventory"
FLEETS = ROOT / "examples"
CAPTURES = ROOT / "tests" / "unit" / "data" / "seed-fleet"


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


def plan_example(name: str, state: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan of an example for recorded machines. Without an index, nothing is locked."""
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_OFFLINE", "1")
    fleet = Fleet(FLEETS / name / "inventory.yml", state_dir=state)
    return fleet.plan(captures=CAPTURES)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("xeon-e5-v2", {"sm86-avx-cp311": 2, "sm86-avx2-cp311": 1}),
        (
            "cpu-variants",
            {
                "cpu-armv8.2-cp311": 1,
                "cpu-armv8.4sve-cp311": 1,
                "cpu-avx2-cp311": 1,
                "cpu-avx512vnni-cp311": 1,
            },
        ),
        (
            "custom-variants",
            {"cpu-avx512-cp311": 1, "sm86-avx2-cp311": 1, "sm90-avx512-cp311": 1},
        ),
        (
            "datacenter-gpus",
            {
                "sm75.sm80-avx512-cp311": 2,
                "sm86-avx2-cp311": 1,
                "sm89-avx2-cp311": 1,
                "sm90-avx512-cp311": 1,
            },
        ),
    ],
)
def test_each_example_is_planned(
    name: str, groups: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_example(name, tmp_path, monkeypatch)
    assert {group.name: len(group.nodes) for group in plan.groups} == groups
    assert {node.state for node in plan.nodes.values()} == {"ok"}


def test_every_example_is_listed() -> None:
    page = (FLEETS / "README.md").read_text("utf-8")
    listed = set(re.findall(r"\]\(([\w-]+)/README\.md\)", page))
    assert listed == {path.parent.name for path in FLEETS.glob("*/inventory.yml")}
