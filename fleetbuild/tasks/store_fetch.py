"""A plan's releases in the store, whole: what can be fetched is fetched, what is missing is named.

In: a plan and the store. Out: the files that were fetched, and what each group still lacks. An
apply fetches for itself; this is for a plan whose wheels were built in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleetbuild.config import base_folder
from fleetbuild.errors import BlockedError, FleetbuildError, InstallError
from fleetbuild.kubernetes.labels.node_labels import has_wheels
from fleetbuild.models import Config, Inventory, LockedFile, Plan, PlannedGroup, PlannedWheel
from fleetbuild.state.directory import StateDir
from fleetbuild.store import Store
from fleetbuild.store.index_config import settings_of
from fleetbuild.text import count, fold

_CONNECTIONS = 8


@dataclass(frozen=True)
class Fetched:
    """What was fetched, and what could not be."""

    files: tuple[LockedFile, ...]
    problems: tuple[FleetbuildError, ...]


def fetch_releases(plan: Plan, store: Store) -> Fetched:
    """Bring every locked dependency and published wheel of the plan's releases into the store."""
    if plan.lock != "complete":
        raise BlockedError(
            f"The plan has no dependency lock ({plan.lock_problem}), so nothing can be fetched.",
            "Plan again where a package index can be reached.",
        )
    wanted = {file.identity: file for file in _wanted(plan, store)}
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        outcomes = list(pool.map(lambda file: _one(store, file), wanted.values()))
    pairs = list(zip(wanted.values(), outcomes, strict=True))
    for wheel in _published(plan, store):
        if wheel.published and (path := store.path_of(wheel.published)).is_file():
            store.add(path, wheel, built_on="published", seconds=0)
    return Fetched(
        files=tuple(file for file, problem in pairs if problem is None),
        problems=tuple(problem for _, problem in pairs if problem is not None),
    )


def still_lacking(plan: Plan, store: Store) -> tuple[str, ...]:
    """What the store lacks, a sentence for each group; the last one names the next command."""
    missing = lacking(plan, store)
    return (*missing.values(), way_on(plan, store)) if missing else ()


def fetch_all(plan: Plan, store: Store) -> tuple[str, ...]:
    """The same, where nothing may be missing: the files that came now."""
    fetched = fetch_releases(plan, store)
    if fetched.problems:
        first, more = fetched.problems[0], len(fetched.problems) - 1
        rest = f" {count(more, 'more file')} could not be fetched." if more else ""
        raise InstallError(first.message + rest, first.fix)
    return tuple(file.file for file in fetched.files)


def refuse_lacking(plan: Plan, store: Store, written: Sequence[Path]) -> None:
    """Raise where some group's release is not whole, and so has no index."""
    if missing := list(lacking(plan, store).values()):
        more = len(missing) - 5
        rest = f" {count(more, 'more group')} as well." if more > 0 else ""
        indexes = "1 index is" if len(written) == 1 else f"{len(written)} indexes are"
        raise BlockedError(
            f"{indexes} written, and not one for each group. {' '.join(missing[:5])}{rest}",
            f"{way_on(plan, store)}.",
        )


def open_store(plan: Plan, state: StateDir, config: Config) -> Store:
    """The store of a state directory, with the indexes and logins of fleetbuild.yml."""
    folder = base_folder(config, Inventory(source=plan.inventory, nodes=()))
    return Store(state.store, settings_of(config, folder))


def lacking(plan: Plan, store: Store) -> dict[str, str]:
    """The groups of which the store does not hold the whole release, with a sentence each."""
    found = {}
    for group in filter(has_wheels, plan.groups):
        files = [file.file for file in group.dependencies or () if not _there(store, file)]
        built = [f"{w.package} {w.wheel_version}" for w in group.wheels if not store.find(w)]
        if files or built or not group.release_id:
            found[group.name] = _sentence(group, built, files)
    return found


def way_on(plan: Plan, store: Store) -> str:
    """The commands that bring what the store lacks."""
    unbuilt = any(
        not wheel.published and not store.find(wheel)
        for group in filter(has_wheels, plan.groups)
        for wheel in group.wheels
    )
    if plan.facts_source != "cluster":
        return "Build and fetch with: fleetbuild apply"
    if unbuilt:
        return (
            "Build them with: fleetbuild emit builds; take them in with: fleetbuild store add DIR"
        )
    return "Fetch them with: fleetbuild store fetch"


def _sentence(group: PlannedGroup, built: list[str], files: list[str]) -> str:
    if not group.release_id:
        return f"{group.name}: no release is planned (the lock is missing)."
    parts = [*built, *([fold(files)] if files else [])]
    return f"{group.name}: the store lacks {', '.join(parts)}."


def _wanted(plan: Plan, store: Store) -> Iterator[LockedFile]:
    for group in filter(has_wheels, plan.groups):
        yield from (file for file in group.dependencies or () if not _there(store, file))
    yield from (wheel.published for wheel in _published(plan, store) if wheel.published)


def _published(plan: Plan, store: Store) -> Iterator[PlannedWheel]:
    """The wheels that others have built, and that the store does not have yet."""
    for group in filter(has_wheels, plan.groups):
        yield from (wheel for wheel in group.wheels if wheel.published and not store.find(wheel))


def _there(store: Store, file: LockedFile) -> bool:
    return store.path_of(file).is_file()


def _one(store: Store, file: LockedFile) -> FleetbuildError | None:
    try:
        store.fetch(file)
    except FleetbuildError as problem:
        return problem
    return None
