"""`fleetbuild store gc`: remove files from the store and the state directory that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetbuild.files import remove_old
from fleetbuild.models import Facts, Plan
from fleetbuild.planner.facts import facts_from
from fleetbuild.probe.captures import load_captures
from fleetbuild.state.directory import StateDir
from fleetbuild.store import Store


def collect_garbage(plan: Plan, state: StateDir) -> tuple[Path, ...]:
    """Remove from the store what neither the plan nor a release on a node needs, and from the
    state directory what runs of long ago have left."""
    keys = {wheel.artifact_key for wheel in plan.wheels}
    keys |= {
        wheel.artifact_key
        for node in _probed(state).values()
        for manifest in node.release.values()
        for wheel in manifest.wheels
    }
    removed = Store(state.store).gc({key for key in keys if key}, set(_files_of(plan)))
    return (*removed, *_outdated(state))


def _probed(state: StateDir) -> dict[str, Facts]:
    """What was last said by every node that was ever reached: the last plan may be one of a few
    (--limit), and the releases of the others are in use all the same."""
    folders = state.facts.iterdir() if state.facts.is_dir() else ()
    known = sorted(folder.name for folder in folders if state.probed(folder.name))
    return facts_from(load_captures(state.facts, known)) if known else {}


def _outdated(state: StateDir) -> Iterator[Path]:
    """Old journals, what playbooks printed and what builds delivered: no build runs so long."""
    for folder in (state.journal, state.runs, state.incoming):
        if folder.is_dir():
            yield from remove_old(folder.iterdir(), days=30)


def _files_of(plan: Plan) -> Iterator[str]:
    """What is the name of all downloads that a plan needs."""
    for group in plan.groups:
        yield from (file.identity for file in group.dependencies or ())
        for wheel in group.wheels:
            yield from (file.identity for file in wheel.build_dependencies)
            yield from (file.identity for file in (wheel.source, wheel.published) if file)
