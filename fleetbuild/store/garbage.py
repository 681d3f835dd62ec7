"""`fleetbuild store gc`: remove files from the store and the state directory that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetbuild.files import remove_old
from fleetbuild.models import Facts, Plan
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.facts import facts_from
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store


def collect_garbage(plan: Plan, state: StateDir) -> tuple[Path, ...]:
    """Remove store files that neither the plan nor a node's release needs, and old run files."""
    keys = {wheel.artifact_key for wheel in plan.wheels}
    keys |= {
        wheel.artifact_key
        for node in probed_facts(state).values()
        for manifest in node.release.values()
        for wheel in manifest.wheels
    }
    removed = Store(state.store).gc({key for key in keys if key}, set(_files_of(plan)))
    return (*removed, *_outdated(state))


def probed_facts(state: StateDir) -> dict[str, Facts]:
    """Return the last facts of every node that was ever probed.

    The last plan may cover a few nodes (--limit), but the releases of the others are still in use.
    """
    folders = state.facts.iterdir() if state.facts.is_dir() else ()
    names = sorted(folder.name for folder in folders if state.probed(folder.name))
    return facts_from(load_captures(state.facts, names)) if names else {}


def _outdated(state: StateDir) -> Iterator[Path]:
    """Yield journals, logs and build deliveries older than any running build can be."""
    for folder in (state.journal, state.runs, state.incoming):
        if folder.is_dir():
            old = (path for path in folder.iterdir() if path != state.revocations_journal)
            yield from remove_old(old, days=30)


def _files_of(plan: Plan) -> Iterator[str]:
    """Yield the identity of every download that a plan needs."""
    for group in plan.groups:
        yield from (file.identity for file in group.dependencies or ())
        for wheel in group.wheels:
            yield from (file.identity for file in wheel.build_dependencies)
            yield from (file.identity for file in wheel.toolkit_wheels)
            yield from (file.identity for file in (wheel.source, wheel.published) if file)
