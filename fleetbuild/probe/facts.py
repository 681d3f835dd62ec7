"""Get the facts of nodes: probe them by SSH, or read stored captures.

In: nodes. Out: facts by node name. A probe also saves its captures and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleetbuild.models import (
    Capture,
    Facts,
    Node,
    OnEvent,
    Unreachable,
    now,
)
from fleetbuild.models.node import ON_WINDOWS, SKIPPED
from fleetbuild.probe.captures import load_captures, save_captures
from fleetbuild.probe.parsing.facts import facts_of, unreachable
from fleetbuild.probe.probing import probe
from fleetbuild.state import StateDir

Prober = Callable[[Sequence[Node], OnEvent], dict[str, Facts]]


def probe_nodes(
    nodes: Sequence[Node],
    *,
    timeout: float,
    forks: int,
    install_path: str,
    on_event: OnEvent,
    state: StateDir | None = None,
    save: Path | None = None,
) -> dict[str, Facts]:
    """Probe these nodes and return their facts. Skipped and Windows nodes are not contacted."""
    asked = [node for node in nodes if not (node.skip or node.login.is_windows)]
    answers = probe(
        asked, timeout=timeout, forks=forks, install_path=install_path, on_event=on_event
    )
    captures = {
        name: one if isinstance(one, Unreachable) else one.capture for name, one in answers.items()
    }
    if save:
        save_captures(save, captures)
    if state:
        keep(state.create(), captures)
    facts = {
        name: unreachable(one.reason, one.fix) if isinstance(one, Unreachable) else one.facts
        for name, one in answers.items()
    }
    return _with_others(nodes, facts)


def stored_facts(folder: Path, nodes: Sequence[Node]) -> dict[str, Facts]:
    """Return the facts of these nodes from the captures in a folder."""
    return _with_others(nodes, facts_from(load_captures(folder, [node.name for node in nodes])))


def last_facts(state: StateDir, nodes: Sequence[Node]) -> tuple[dict[str, Facts], dict[str, str]]:
    """Return the facts of the last probe, and when each node was read.

    A node is left out if a run changed it later without learning the outcome.
    """
    ages = {
        node.name: age.isoformat()
        for node in nodes
        if (age := state.probed(node.name)) and not state.is_changing(node.name)
    }
    probed = [node for node in nodes if node.name in ages]
    return (stored_facts(state.facts, probed) if probed else {}), ages


def facts_from(captures: Mapping[str, Capture | Unreachable]) -> dict[str, Facts]:
    """Return the facts in these captures."""
    return {name: _read(capture) for name, capture in captures.items()}


def _with_others(nodes: Sequence[Node], found: Mapping[str, Facts]) -> dict[str, Facts]:
    """Add the nodes that were not asked: skipped ones, unless captures exist, and Windows nodes."""
    missing = Facts(state="skipped", reason=SKIPPED)
    windows = Facts(state="unsupported", reason=ON_WINDOWS.reason, fix=ON_WINDOWS.fix)
    reached = {name: facts for name, facts in found.items() if facts.state != "unreachable"}

    def facts_for(node: Node) -> Facts:
        if node.skip:
            return reached.get(node.name, missing)
        return windows if node.login.is_windows else found[node.name]

    return {node.name: facts_for(node) for node in nodes}


def _read(capture: Capture | Unreachable) -> Facts:
    if isinstance(capture, Unreachable):
        return unreachable(capture.reason, capture.fix)
    return facts_of(capture)


def keep(state: StateDir, captures: Mapping[str, Capture | Unreachable]) -> None:
    """Store the captures, for use while nodes are unreachable."""
    save_captures(state.facts, captures)
    for name, capture in captures.items():
        if not isinstance(capture, Unreachable):
            state.mark_probed(name, now())
