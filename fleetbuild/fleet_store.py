"""`Fleet.store`: list, add, check and remove the wheels of a state directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetbuild.errors import UsageError
from fleetbuild.models import Config, Plan
from fleetbuild.models.stored import StoredWheel
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir
from fleetbuild.store.fetch_locked import fetch_all, open_store, still_lacking
from fleetbuild.store.garbage import collect_garbage
from fleetbuild.store.wheels import Store


class FleetStore:
    """The wheels in a state directory. All but `list`, `check` and `remove` need the last plan."""

    def __init__(
        self, state: StateDir, last_plan: Callable[[], Plan], config: Callable[[], Config]
    ) -> None:
        self.state = state
        self.last_plan = last_plan
        self._config = config
        self._store = Store(state.store)

    def open(self) -> Store:
        """Return the store for the last plan, with the indexes and logins of fleetbuild.yml."""
        return open_store(self.last_plan(), self.state, self._config())

    def list(self) -> tuple[StoredWheel, ...]:
        """Return the wheels that were built or added."""
        return self._store.list()

    def gc(self) -> tuple[Path, ...]:
        """Remove wheels that neither the last plan nor a release on a node needs, and files of runs
        more than 30 days ago: journals, output and delivered wheels."""
        plan = self.last_plan()
        with hold_run_lock(self.state.create().lock_file):
            return collect_garbage(plan, self.state)

    def check(self) -> tuple[Path, ...]:
        """Read every wheel and download, and remove the damaged ones; return their paths.

        The next plan builds removed wheels again, and the next apply fetches removed downloads.
        """
        with hold_run_lock(self.state.create().lock_file):
            return self._store.check()

    def remove(self, name: str) -> tuple[Path, ...]:
        """Remove wheels by package, NAME==VERSION, artifact key or sha256; return their paths."""
        with hold_run_lock(self.state.create().lock_file):
            removed = self._store.remove(name)
        if not removed:
            raise UsageError(
                f"The store has no wheel {name}.",
                "See the names and keys with: fleetbuild store list",
            )
        return removed

    def fetch(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Fetch the locked dependencies of the last plan's groups.

        Return the names of the new files, a sentence for each group whose release is not complete,
        and last the next command. Raise InstallError if a file cannot be fetched.
        """
        plan, store = self.last_plan(), self.open()
        return fetch_all(plan, store), still_lacking(plan, store)
