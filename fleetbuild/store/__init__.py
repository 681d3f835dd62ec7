"""The controller's side of packages: what to resolve and fetch, and the wheels that were built."""

from fleetbuild.store.index import IndexFile, write_index
from fleetbuild.store.index_config import IndexSettings, index_settings
from fleetbuild.store.wheels import Provenance, Store, StoredWheel

__all__ = [
    "IndexFile",
    "IndexSettings",
    "Provenance",
    "Store",
    "StoredWheel",
    "index_settings",
    "write_index",
]
