"""`fleetbuild store export` and `store push`: the last plan's wheels, for others to install.

In: the store of a fleet. Out: an index for each group in a folder, or uploads to an index server.
"""

from __future__ import annotations

from pathlib import Path

from fleetbuild.extensions.supply.push import (
    OnFile,
    Pushed,
    ignore_file,
    is_address,
    push_to_folder,
    push_to_server,
)
from fleetbuild.extensions.supply.variants import REQUIREMENTS, write_variants
from fleetbuild.files import write_atomically
from fleetbuild.fleet_store import FleetStore
from fleetbuild.models.release import requirements
from fleetbuild.store.fetch_locked import fetch_all, refuse_lacking
from fleetbuild.store.release_files import export_indexes, release_files, writing


def export(stored: FleetStore, folder: Path | str) -> tuple[Path, ...]:
    """Write an index for each group of the last plan, for pip and uv; return their paths.

    `variants.md` and `variants.json` beside them say which wheel is for which machine, and
    `requirements.txt` in each group's folder has its versions and hashes.
    Locked dependencies are fetched first. If the store lacks files of a group, the indexes of
    the other groups are written and a BlockedError lists the missing files.
    """
    folder, plan, store = Path(folder), stored.last_plan(), stored.open()
    fetch_all(plan, store)
    written = export_indexes(plan, store, folder)
    if written:
        names = [index.parent.name for index in written]
        whole = release_files(plan, store)
        with writing(folder):
            for name in names:
                text = requirements(whole[name])
                write_atomically(folder / name / REQUIREMENTS, text, mode=0o644)
            write_variants(plan, store, names, folder)
    refuse_lacking(plan, store, written)
    return written


def push(
    stored: FleetStore,
    destination: Path | str,
    *,
    index: str | None = None,
    on_file: OnFile = ignore_file,
) -> Pushed:
    """Publish the last plan's wheels in a folder of static indexes or on an index server.

    A folder gets the index of each group, as by `export`, and keeps the files that it has. To a
    server, the built wheels are uploaded by `uv publish`; `index` is the address that pip
    installs from, and `on_file` hears of each file. The login comes from UV_PUBLISH_TOKEN (or
    _USERNAME and _PASSWORD), TWINE_USERNAME and TWINE_PASSWORD, or ~/.netrc.
    """
    server = is_address(str(destination), index)
    plan, store = stored.last_plan(), stored.open()
    if server:
        table = stored.state.create().root / "variants"
        return push_to_server(
            plan, store, str(destination), index=index, table=table, on_file=on_file
        )
    folder = Path(destination)
    fetch_all(plan, store)
    with writing(folder):
        pushed = push_to_folder(plan, store, folder)
    groups = {name.partition("/")[0] for name in (*pushed.new, *pushed.there)}
    refuse_lacking(plan, store, [folder / group for group in sorted(groups)])
    return pushed
