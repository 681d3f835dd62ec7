"""The files of each group's release, if the store has all of them.

In: a plan and the store. Out: `ReleaseFile`s by group, or an index for each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath

from fleetbuild.audit.downloads import contents_of
from fleetbuild.audit.import_names import import_names
from fleetbuild.audit.ownership import owners
from fleetbuild.errors import UsageError
from fleetbuild.files import raise_if_full
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile
from fleetbuild.store.index import write_index
from fleetbuild.store.wheels import Store


def export_indexes(plan: Plan, store: Store, folder: Path) -> tuple[Path, ...]:
    """Write an index for each group whose release is complete in the store."""
    with writing(folder):
        return tuple(
            write_index(folder / group, files)
            for group, files in release_files(plan, store).items()
            if files
        )


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn the error of a folder that cannot be written into a usage error."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise_if_full(error)
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}.", "Name another folder."
        ) from None


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
    paths = tuple(file.path for file in _held(group, store))
    return _second_owners(paths, tuple(sorted(allowed.items())))


@cache
def _second_owners(
    paths: tuple[Path, ...], allowed: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[str, ...]:
    return owners(paths, dict(allowed))[0]


def _wheels(release: Sequence[ReleaseFile]) -> Iterator[ReleaseFile]:
    """Yield each wheel with the libraries that it needs and that no wheel of the release has."""
    wanted = {name for file in release for name in file.needs}
    paths = (path for file in release if wanted for path in contents_of(file.path).names)
    brought = {PurePosixPath(path).name for path in paths}
    for file in release:
        yield file._replace(needs=tuple(name for name in file.needs if name not in brought))


def _held(group: PlannedGroup, store: Store) -> Iterator[ReleaseFile]:
    """Yield the files of a group's release that are in the store."""
    for wheel in group.wheels:
        if stored := store.find(wheel):
            record = stored.provenance
            # A record from before has none; to read the wheel again starts a process.
            imports = wheel.import_names or record.imports or import_names(stored.path)
            yield ReleaseFile(wheel.package, stored.path, stored.sha256, record.needs, imports)
    for locked in group.dependencies or ():
        path = store.path_of(locked)
        if path.is_file():
            yield ReleaseFile(locked.name, path, locked.sha256)
