"""Which nodes are asked, and the facts of the other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.cli.show.facts import facts_ending
from fleetbuild.models import Login, Node, ignore
from fleetbuild.probe import facts as probing
from fleetbuild.probe.facts import probe_nodes, stored_facts
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.probing import Probed

CAPTURE = {"uname": "Linux 6.1 x86_64", "cpuinfo": "flags : lm avx"}
NODES = [
    Node(name="a", login=Login(host="a")),
    Node(name="b", login=Login(host="b"), skip=True),
    Node(name="c", login=Login(host="c")),
]


def test_nodes_with_fleetbuild_skip_are_not_probed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def probe(nodes: Sequence[Node], **_: Any) -> dict[str, Probed]:
        asked.extend(node.name for node in nodes)
        return {node.name: Probed(CAPTURE, facts_of(CAPTURE)) for node in nodes}

    monkeypatch.setattr(probing, "probe", probe)
    facts = probe_nodes(
        NODES, timeout=1, forks=1, install_path="/opt/x", on_event=ignore, save=tmp_path
    )
    assert asked == ["a", "c"]
    assert [(name, known.state) for name, known in facts.items()] == [
        ("a", "ok"), ("b", "skipped"), ("c", "ok"),
    ]  # fmt: skip
    assert facts["b"].reason == "The inventory says fleetbuild_skip."
    assert facts_ending(facts, 1.0) == ["2 nodes asked in 1.0 s, 2 ok."]
    # In the saved captures, the missing node is not unreachable either.
    assert stored_facts(tmp_path, NODES)["b"].state == "skipped"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "uname").write_text("Linux 6.1 x86_64")
    assert stored_facts(tmp_path, NODES)["b"].arch == "x86_64"
