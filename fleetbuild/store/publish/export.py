"""`fleetbuild store export`: write a package index for each group from the store.

In: a plan and the store. Out: index folders; for `emit`, the files of each group's release.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fleetbuild.audit import file_names
from fleetbuild.audit.ownership import second_owners
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile
from fleetbuild.store import IndexFile, Store, write_index


def export_indexes(plan: Plan, store: Store, folder: Path) -> tuple[Path, ...]:
    """Write an index for each group whose release is complete in the store."""
    return tuple(
        write_index(folder / group, files, copy=True)
        for group, files in release_index_files(plan, store).items()
    )


def release_index_files(plan: Plan, store: Store) -> dict[str, tuple[IndexFile, ...]]:
    """Return the files for the index of each group whose release is complete in the store."""
    whole = release_files(plan, store)
    return {
        group.name: tuple(held.file for held in _held(group, store))
        for group in plan.groups
        if whole.get(group.name)
    }


def release_files(plan: Plan, store: Store) -> dict[str, tuple[ReleaseFile, ...]]:
    """Return the files of each group's release, if all are in the store.

    A group that needs a revoked wheel has no release.
    """
    revoked = store.revocations.in_plan(plan)
    releases = {
        group.name: () if group.name in revoked else tuple(_held(group, store))
        for group in plan.groups
    }
    return {
        group.name: tuple(_wheels(releases[group.name]))
        for group in plan.groups
        if group.name not in revoked
        and len(releases[group.name]) == len(group.wheels) + len(group.dependencies or ())
        and not shared_in_cluster_release(plan, group, store)
    }


def shared_in_cluster_release(plan: Plan, group: PlannedGroup, store: Store) -> tuple[str, ...]:
    """Return a sentence for each name that two wheels of a release built in a cluster bring.

    An apply checks this before it installs anything; a cluster has no such step.
    """
    if plan.build_image is None:
        return ()
    allowed = {**store.settings.allow_files, **{w.package: w.allow_files for w in group.wheels}}
    return _second_owners(
        tuple(held.file.path for held in _held(group, store)), tuple(sorted(allowed.items()))
    )


@cache
def _second_owners(
    paths: tuple[Path, ...], allowed: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[str, ...]:
    return second_owners(paths, dict(allowed))


def _wheels(release: Sequence[_Held]) -> Iterator[ReleaseFile]:
    """Yield each wheel with the libraries that it needs and that no wheel of the release has."""
    wanted = {name for held in release for name in held.needs}
    brought = {name for held in release for name in file_names(held.file.path)} if wanted else set()
    for file, needs in release:
        version = file.path.name.split("-")[1]
        left = tuple(name for name in needs if name not in brought)
        yield ReleaseFile(file.name, version, file.sha256, left, file.path.name)


class _Held(NamedTuple):
    file: IndexFile
    needs: tuple[str, ...] = ()


def _held(group: PlannedGroup, store: Store) -> Iterator[_Held]:
    """Yield the files of a group's release that are in the store."""
    for wheel in group.wheels:
        if stored := store.find(wheel):
            file = IndexFile(name=wheel.package, path=stored.path, sha256=stored.sha256)
            yield _Held(file, stored.provenance.needs)
    for locked in group.dependencies or ():
        path = store.path_of(locked)
        if path.is_file():
            yield _Held(IndexFile(name=locked.name, path=path, sha256=locked.sha256))
