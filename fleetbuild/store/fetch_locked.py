"""Fetch the locked files of a plan that the store lacks, and list the files still missing.

In: a plan and the store. Out: the fetched files, and the missing files of each group. An apply
fetches for itself; this serves plans whose wheels were built in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetbuild.config import base_folder
from fleetbuild.errors import AuditError, BlockedError, FleetbuildError, InstallError
from fleetbuild.models import Config, Inventory, LockedFile, Plan, PlannedGroup, PlannedWheel
from fleetbuild.models.stored import BuildContext
from fleetbuild.state import StateDir
from fleetbuild.store.index_config import settings_of
from fleetbuild.store.release_files import shared_in_cluster_release
from fleetbuild.store.wheels import Store
from fleetbuild.text import count, fold
from fleetbuild.workers import Workers

_CONNECTIONS = 8


def fetch_releases(plan: Plan, store: Store) -> tuple[list[str], list[FleetbuildError]]:
    """Fetch every locked dependency and published wheel of the plan's releases into the store.

    Return the names of the new files, and why others could not be fetched.
    """
    if plan.lock != "complete":
        raise BlockedError(
            f"The plan has no dependency lock ({plan.lock_problem}), so nothing can be fetched.",
            "Plan again with access to a package index.",
        )
    wanted = {file.identity: file for file in _wanted(plan, store)}
    with Workers(_CONNECTIONS) as pool:
        outcomes = list(pool.map(lambda file: _one(store, file), wanted.values()))
    pairs = list(zip(wanted.values(), outcomes, strict=True))
    for wheel in _published(plan, store):
        if wheel.published and (path := store.path_of(wheel.published)).is_file():
            context = BuildContext(plan_digest=plan.digest)
            store.add(path, wheel, built_on="published", seconds=0, context=context)
    problems = [problem for _, problem in pairs if problem]
    return [file.file for file, problem in pairs if problem is None], problems


def still_lacking(plan: Plan, store: Store) -> tuple[str, ...]:
    """Return a sentence for each group with missing files; the last one has the next command."""
    missing = lacking(plan, store)
    return (*missing.values(), way_on(plan, store)) if missing else ()


def fetch_all(plan: Plan, store: Store) -> tuple[str, ...]:
    """Fetch like `fetch_releases`; raise if a file is missing, else return the new files."""
    files, problems = fetch_releases(plan, store)
    if problems:
        first, more = problems[0], len(problems) - 1
        rest = f" {count(more, 'more file')} could not be fetched." if more else ""
        kind = AuditError if isinstance(first, AuditError) else InstallError
        raise kind(first.message + rest, first.fix)
    return tuple(files)


def refuse_lacking(plan: Plan, store: Store, written: Sequence[Path]) -> None:
    """Raise if a group's release is incomplete and therefore has no index."""
    if missing := list(lacking(plan, store).values()):
        more = len(missing) - 5
        rest = f" {count(more, 'more group')} as well." if more > 0 else ""
        indexes = "1 index was" if len(written) == 1 else f"{len(written)} indexes were"
        raise BlockedError(
            f"{indexes} written; the other groups are incomplete. {' '.join(missing[:5])}{rest}",
            f"{way_on(plan, store)}.",
        )


def open_store(plan: Plan, state: StateDir, config: Config) -> Store:
    """Return the store of a state directory, with the indexes and logins of fleetbuild.yml."""
    folder = base_folder(config, Inventory(source=plan.inventory, nodes=()))
    return Store(state.store, settings_of(config, folder))


def lacking(plan: Plan, store: Store) -> dict[str, str]:
    """Return a sentence for each group whose release is incomplete in the store, by group."""
    missing = {}
    revoked = store.revocations.in_plan(plan)
    for group in plan.unblocked_groups:
        if why := revoked.get(group.name):
            missing[group.name] = f"{group.name}: {why}"
            continue
        files = [file.file for file in group.dependencies or () if not _there(store, file)]
        built = [f"{w.package} {w.wheel_version}" for w in group.wheels if not store.find(w)]
        if files or built or not group.release_id:
            missing[group.name] = _sentence(group, built, files)
        elif shared := shared_in_cluster_release(plan, group, store):
            more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
            missing[group.name] = (
                f"{group.name}: wheels of this release take each other's names:"
                f" {'; '.join(shared[:3])}{more}."
                " Leave out one of these packages, or take other versions."
            )
    return missing


def way_on(plan: Plan, store: Store) -> str:
    """Return the commands that complete the store."""
    if store.revocations.in_plan(plan) or not plan.unblocked_groups:
        return "Plan again: fleetbuild plan INVENTORY; then fleetbuild apply"
    unbuilt = any(
        not wheel.published and not store.find(wheel)
        for group in plan.unblocked_groups
        for wheel in group.wheels
    )
    if plan.facts_source != "cluster":
        return "Build and fetch with: fleetbuild apply"
    if unbuilt:
        return "Build them with: fleetbuild emit builds; add them with: fleetbuild store add DIR"
    return "Fetch them with: fleetbuild store fetch"


def _sentence(group: PlannedGroup, built: list[str], files: list[str]) -> str:
    if not group.release_id:
        return f"{group.name}: no release is planned (the lock is missing)."
    parts = [*built, *([fold(files)] if files else [])]
    return f"{group.name}: the store lacks {', '.join(parts)}."


def _wanted(plan: Plan, store: Store) -> Iterator[LockedFile]:
    for group in plan.unblocked_groups:
        yield from (file for file in group.dependencies or () if not _there(store, file))
    yield from (wheel.published for wheel in _published(plan, store) if wheel.published)


def _published(plan: Plan, store: Store) -> Iterator[PlannedWheel]:
    """Yield the published wheels that the store does not have yet."""
    for group in plan.unblocked_groups:
        yield from (wheel for wheel in group.wheels if wheel.published and not store.find(wheel))


def _there(store: Store, file: LockedFile) -> bool:
    return store.path_of(file).is_file()


def _one(store: Store, file: LockedFile) -> FleetbuildError | None:
    try:
        store.fetch(file)
    except FleetbuildError as problem:
        return problem
    return None
