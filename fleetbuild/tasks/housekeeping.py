"""What is done with the last plan besides applying it: explained, tidied up after, exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fleetbuild.audit import file_names
from fleetbuild.files import remove_old
from fleetbuild.kubernetes import Wheel
from fleetbuild.models import Facts, Plan, PlannedGroup
from fleetbuild.models._base import Frozen
from fleetbuild.planner.facts import facts_from
from fleetbuild.planning import explain_group, explain_node
from fleetbuild.probe.captures import load_captures
from fleetbuild.state.directory import StateDir
from fleetbuild.store import IndexFile, Store, write_index


class Explanation(Frozen):
    """Why a node or group is what it is, and from when the facts are that say so."""

    name: str
    lines: tuple[str, ...]
    planned: str
    probed: str | None = None


def explained(plan: Plan, name: str, state: StateDir, captures: Path | None) -> Explanation:
    """The story of a node or group, by captures or by what the last probe brought."""
    group = next((group for group in plan.groups if group.name == name), None)
    names = tuple(group.nodes) if group else (name,)
    folder = captures or state.facts
    known = {each for each in names if each in plan.nodes and (captures or state.probed(each))}
    facts = facts_from(load_captures(folder, sorted(known))) if known else {}
    lines = explain_group(plan, facts, name) if group else explain_node(plan, facts.get(name), name)
    ages = () if captures else (state.probed(each) for each in known)
    return Explanation(name=name, lines=tuple(lines), planned=plan.created, probed=_oldest(ages))


def _oldest(ages: Iterator[datetime | None] | tuple[()]) -> str | None:
    known = [age for age in ages if age]
    return min(known).isoformat() if known else None


def collect_garbage(plan: Plan, state: StateDir) -> tuple[Path, ...]:
    """Remove from the store what neither the plan nor a release on a node needs, and from the
    state directory what runs of long ago have left."""
    keys = {wheel.artifact_key for group in plan.groups for wheel in group.wheels}
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


def exported(plan: Plan, store: Store, folder: Path) -> tuple[Path, ...]:
    """An index for each group of the plan, with all of its release that the store holds."""
    return tuple(
        write_index(folder / group.name, files, copy=True)
        for group in plan.groups
        if (files := [held.file for held in _held(group, store)])
    )


def release_files(plan: Plan, store: Store) -> dict[str, tuple[Wheel, ...]]:
    """The files of each group's release, where the store holds all of them."""
    releases = {group.name: tuple(_held(group, store)) for group in plan.groups}
    return {
        group.name: tuple(_wheels(releases[group.name]))
        for group in plan.groups
        if len(releases[group.name]) == len(group.wheels) + len(group.dependencies or ())
    }


def _wheels(release: Sequence[_Held]) -> Iterator[Wheel]:
    """With the libraries that each is linked with and none of them brings."""
    wanted = {name for held in release for name in held.needs}
    brought = {name for held in release for name in file_names(held.file.path)} if wanted else set()
    for file, needs in release:
        version = file.path.name.split("-")[1]
        left = tuple(name for name in needs if name not in brought)
        yield Wheel(file.name, version, file.sha256, left)


class _Held(NamedTuple):
    file: IndexFile
    needs: tuple[str, ...] = ()


def _held(group: PlannedGroup, store: Store) -> Iterator[_Held]:
    """The files of a group's release that the store holds."""
    for wheel in group.wheels:
        if stored := store.find(wheel):
            file = IndexFile(name=wheel.package, path=stored.path, sha256=stored.sha256)
            yield _Held(file, stored.provenance.needs)
    for locked in group.dependencies or ():
        path = store.path_of(locked)
        if path.is_file():
            yield _Held(IndexFile(name=locked.name, path=path, sha256=locked.sha256))
