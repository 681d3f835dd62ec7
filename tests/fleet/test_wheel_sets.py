"""A merged group on real nodes: one wheel, built for what both kinds have, runs on both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fleetbuild
from fleetbuild import Config, Fleet, Plan, Result
from tests.lab import Lab


def test_max_wheel_sets_gives_two_kinds_of_node_one_wheel(
    make_lab: Callable[[Mapping[str, Any]], Lab], tmp_path: Path
) -> None:
    lab = make_lab({"nodes": {"old": {"hardware": "avx"}, "new": {"hardware": "avx2"}}})
    inventory = fleetbuild.read_inventory(lab.inventory)

    def plan(**grouping: Any) -> Plan:
        config = Config.model_validate({"packages": ["xxhash==3.6.0"], "grouping": grouping})
        return Fleet(inventory, config=config, state_dir=tmp_path).plan()

    def apply(made: Plan) -> Result:
        return Fleet(inventory, state_dir=tmp_path, timeout=15).apply(made)

    merged = plan(max_wheel_sets=1)
    assert [group.name for group in merged.groups] == ["cpu-avx-cp311"]
    assert merged.nodes["new"].merged_from == "cpu-avx2-cp311"
    result = apply(merged)
    assert result.exit_code == 0
    assert {node.node: node.group for node in result.nodes} == dict.fromkeys(
        ("old", "new"), "cpu-avx-cp311"
    )
    again = plan(max_wheel_sets=1)
    assert again.summary.nodes_up_to_date == 2

    # Without the cap only the node that was merged changes.
    apart = plan()
    assert [(group.name, group.installs.upgrade) for group in apart.groups] == [
        ("cpu-avx-cp311", ()), ("cpu-avx2-cp311", ("new",)),
    ]  # fmt: skip
    assert apply(apart).exit_code == 0
