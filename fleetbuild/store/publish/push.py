"""`fleetbuild store push`: publish the last plan's wheels in a folder or on an index server.

In: a plan, the store, a destination. Out: the published files, and the table of variants. A
published file never changes: the same name with another content is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.models import Plan
from fleetbuild.store import IndexFile, Store, write_index
from fleetbuild.store.fetch_locked import way_on
from fleetbuild.store.publish.export import release_index_files
from fleetbuild.store.publish.upload import Upload, login_for, refuse_login_in, upload
from fleetbuild.store.publish.variants import write_uploaded, write_variants


class Pushed(NamedTuple):
    """What a push did: files that are new there, files that were there, and the table."""

    new: tuple[str, ...]
    there: tuple[str, ...]
    table: Path | None


OnFile = Callable[[str, bool], None]  # a file's name, and whether it is new there


def ignore_file(_name: str, _new: bool) -> None:
    """Do nothing: nobody asked to hear of each file."""


def is_address(destination: str, index: str | None = None) -> bool:
    """Return whether this is the address of a server, and not a folder."""
    if urlsplit(destination).scheme in ("http", "https"):
        return True
    if "://" in destination:
        raise UsageError(
            f"{destination} is not an address that takes uploads.",
            "Name an address that begins with https://, or a folder.",
        )
    if index:
        raise UsageError(
            "The address that pip installs from goes with an upload, but the destination is a "
            "folder.",
            "Leave out --index-url, or name the address of a server.",
        )
    return False


def push_to_folder(plan: Plan, store: Store, folder: Path) -> Pushed:
    """Add each complete group to its index in this folder; files that are there stay."""
    new: list[str] = []
    there: list[str] = []
    groups: list[str] = []
    for group, files in release_index_files(plan, store).items():
        known = {file.path.name: file for file in _published(folder / group)}
        for file in files:
            _refuse_change(known.get(file.path.name), file, folder / group)
            (there if file.path.name in known else new).append(f"{group}/{file.path.name}")
        kept = [known[name] for name in known.keys() - {file.path.name for file in files}]
        write_index(folder / group, [*files, *kept], copy=True)
        groups.append(group)
    table = write_variants(plan, store, groups, folder, keep=True) if groups else None
    return Pushed(tuple(new), tuple(there), table)


def push_to_server(
    plan: Plan,
    store: Store,
    url: str,
    *,
    index: str | None,
    table: Path,
    on_file: OnFile = ignore_file,
) -> Pushed:
    """Upload each wheel that was built for this plan; write the table into the folder `table`.

    `index` is the address that pip installs from; default: the upload's address and simple/.
    """
    refuse_login_in(url)
    if index:
        refuse_login_in(index)
    simple = index or f"{url.rstrip('/')}/simple/"
    wheels = tuple({wheel.sha256: wheel for wheel in _built(plan, store)}.values())
    if not wheels:
        raise BlockedError(
            "The store has no wheel that was built for the last plan, so nothing was uploaded.",
            f"{way_on(plan, store)}.",
        )
    login = login_for(url)
    new: list[str] = []
    there: list[str] = []
    for wheel in wheels:
        arrived = upload(wheel, url, simple, login)
        (new if arrived else there).append(wheel.path.name)
        on_file(wheel.path.name, arrived)
    return Pushed(tuple(new), tuple(there), write_uploaded(plan, store, simple, table))


def _built(plan: Plan, store: Store) -> Iterator[Upload]:
    for wheel in plan.wheels:
        if not wheel.published and (stored := store.find(wheel)):
            yield Upload(stored.path, stored.sha256)


def _published(folder: Path) -> Iterator[IndexFile]:
    """Yield the files of an index that was pushed or exported to this folder before."""
    for page in sorted(folder.glob("simple/*/index.json")):
        try:
            document = json.loads(page.read_bytes())
            rows = [(each["filename"], each["hashes"]["sha256"]) for each in document["files"]]
            name = document["name"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise UsageError(
                f"{page} is not an index that fleetbuild wrote.",
                "Name another folder, or remove it.",
            ) from None
        for file, sha256 in rows:
            path = folder / "files" / Path(str(file)).name
            if path.is_file():
                yield IndexFile(name=str(name), path=path, sha256=str(sha256))


def _refuse_change(known: IndexFile | None, file: IndexFile, folder: Path) -> None:
    if known is None or known.sha256 == file.sha256:
        return
    raise UsageError(
        f"{folder} already has a {file.path.name} with the sha256 {known.sha256}; this one has "
        f"{file.sha256}. Installers that locked the other file would refuse this one.",
        "Remove the folder and push again, or push to another one.",
    )
