"""The captured Windows nodes, and plans for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetbuild.extensions.windows.facts import SECTIONS, windows_facts
from fleetbuild.extensions.windows.planning import WindowsGroup, WindowsPlan, plan_windows
from fleetbuild.models import Capture, Config, Facts
from fleetbuild.probe.captures import load_captures
from tests.factories.fleets import node, package

HERE = Path(__file__).parent
DATA = HERE / "data"
NAMES = sorted(folder.name for folder in DATA.iterdir())
TORCH = [package("torch", "2.0.1")]


def capture(name: str, **changes: str) -> Capture:
    """The capture of a node, with other texts in some sections."""
    found = load_captures(DATA, [name], SECTIONS)[name]
    assert isinstance(found, dict)
    return {**found, **{section.replace("_", "-"): text for section, text in changes.items()}}


def known(name: str, **changes: Any) -> Facts:
    """The facts of a captured node, some of them changed."""
    return windows_facts(capture(name)).model_copy(update=changes)


def plan_of(
    *names: str, packages: Any = TORCH, config: Config | None = None, nodes: Any = (), **more: Facts
) -> WindowsPlan:
    """The plan for these captured nodes, and for others by their facts."""
    facts = {**{name: known(name) for name in names}, **more}
    return plan_windows(nodes or [*map(node, facts)], facts, packages, config or Config())


def only(plan: WindowsPlan) -> WindowsGroup:
    """The one group of a plan."""
    (group,) = plan.groups
    return group
