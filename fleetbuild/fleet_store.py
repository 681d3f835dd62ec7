"""`Fleet.store`: list, add, remove and export the wheels of a state directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetbuild.apply.cluster_builds import add_built_wheels
from fleetbuild.errors import UsageError
from fleetbuild.files import raise_if_full, write_atomically
from fleetbuild.models import Config, Plan, WheelResult
from fleetbuild.models.release import requirements
from fleetbuild.models.revocation import Revocation
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir
from fleetbuild.store.fetch_locked import fetch_all, open_store, refuse_lacking, still_lacking
from fleetbuild.store.garbage import collect_garbage
from fleetbuild.store.provenance.check import ProvenanceReport, provenance_of
from fleetbuild.store.publish.export import export_indexes, release_files
from fleetbuild.store.publish.push import (
    OnFile,
    Pushed,
    ignore_file,
    is_address,
    push_to_folder,
    push_to_server,
)
from fleetbuild.store.publish.variants import REQUIREMENTS, write_variants
from fleetbuild.store.revoke import Revoked, revoke, revoked_wheels, take_back
from fleetbuild.store.stored import StoredWheel
from fleetbuild.store.wheels import Store


class FleetStore:
    """The wheels in a state directory. All but `list`, `check` and `remove` need the last plan."""

    def __init__(
        self, state: StateDir, last_plan: Callable[[], Plan], config: Callable[[], Config]
    ) -> None:
        self._state = state
        self._last_plan = last_plan
        self._config = config
        self._store = Store(state.store)

    def list(self) -> tuple[StoredWheel, ...]:
        """Return the wheels that were built or added."""
        return self._store.list()

    def add(self, folder: Path | str) -> tuple[WheelResult, ...]:
        """Add the last plan's wheels that Jobs built in a cluster.

        Each is audited first, like a wheel from a node.
        """
        plan = self._last_plan()
        with hold_run_lock(self._state.create().lock_file):
            store = open_store(plan, self._state, self._config())
            return add_built_wheels(plan, Path(folder), store)

    def gc(self) -> tuple[Path, ...]:
        """Remove wheels that neither the last plan nor a release on a node needs, and files of runs
        more than 30 days ago: journals, output and delivered wheels."""
        plan = self._last_plan()
        with hold_run_lock(self._state.create().lock_file):
            return collect_garbage(plan, self._state)

    def check(self) -> tuple[Path, ...]:
        """Read every wheel and download, and remove the damaged ones; return their paths.

        The next plan builds removed wheels again, and the next apply fetches removed downloads.
        """
        with hold_run_lock(self._state.create().lock_file):
            return self._store.check()

    def remove(self, name: str) -> tuple[Path, ...]:
        """Remove wheels by package, NAME==VERSION, artifact key or sha256; return their paths."""
        with hold_run_lock(self._state.create().lock_file):
            removed = self._store.remove(name)
        if not removed:
            raise UsageError(
                f"The store has no wheel {name}.",
                "See the names and keys with: fleetbuild store list",
            )
        return removed

    def revoke(self, what: str, reason: str) -> Revoked:
        """Recall a wheel by sha256, or all wheels of NAME==VERSION, from everywhere.

        No plan, store, index, manifest or rollback uses them any more; the next plan and apply
        replace them on the nodes. `take_back` undoes it.
        """
        return revoke(what, reason, self._state)

    def revocations(self) -> tuple[Revoked, ...]:
        """Return what `revoke` recalled, with the wheels and nodes that it concerns."""
        return revoked_wheels(self._state)

    def take_back(self, what: str) -> Revocation:
        """Undo a revocation, by the sha256 or NAME==VERSION that was revoked."""
        return take_back(what, self._state)

    def provenance(self, wheel: Path | str) -> ProvenanceReport:
        """Return where a wheel comes from, checked; `wheel` is a file or a name in the store."""
        return provenance_of(wheel, self._store)

    def fetch(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Fetch the locked dependencies of the last plan's groups.

        Return the names of the new files, a sentence for each group whose release is not complete,
        and last the next command. Raise InstallError if a file cannot be fetched.
        """
        plan = self._last_plan()
        store = open_store(plan, self._state, self._config())
        return fetch_all(plan, store), still_lacking(plan, store)

    def export(self, folder: Path | str) -> tuple[Path, ...]:
        """Write an index for each group of the last plan, for pip and uv; return their paths.

        `variants.md` and `variants.json` beside them say which wheel is for which machine, and
        `requirements.txt` in each group's folder has its versions and hashes.
        Locked dependencies are fetched first. If the store lacks files of a group, the indexes of
        the other groups are written and a BlockedError lists the missing files.
        """
        plan = self._last_plan()
        store = open_store(plan, self._state, self._config())
        fetch_all(plan, store)
        written = export_plan(plan, store, Path(folder))
        if written:
            names = [index.parent.name for index in written]
            whole = release_files(plan, store)
            with _writing(Path(folder)):
                for name in names:
                    text = requirements(whole[name])
                    write_atomically(Path(folder, name, REQUIREMENTS), text, mode=0o644)
                write_variants(plan, store, names, Path(folder))
        refuse_lacking(plan, store, written)
        return written

    def push(
        self,
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
        plan = self._last_plan()
        store = open_store(plan, self._state, self._config())
        if server:
            table = self._state.create().root / "variants"
            return push_to_server(
                plan, store, str(destination), index=index, table=table, on_file=on_file
            )
        fetch_all(plan, store)
        with _writing(Path(destination)):
            pushed = push_to_folder(plan, store, Path(destination))
        groups = {name.partition("/")[0] for name in (*pushed.new, *pushed.there)}
        refuse_lacking(plan, store, [Path(destination, group) for group in sorted(groups)])
        return pushed


def export_plan(plan: Plan, store: Store, folder: Path) -> tuple[Path, ...]:
    """Write the indexes of the groups whose release is complete.

    A folder that cannot be written is a usage error.
    """
    with _writing(folder):
        return export_indexes(plan, store, folder)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise_if_full(error)
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}.",
            "Name another folder.",
        ) from None
