"""Packages on the controller: resolve and fetch dependencies, and store built wheels."""

from fleetbuild.store.index import IndexFile, write_index
from fleetbuild.store.index_config import IndexSettings, index_settings
from fleetbuild.store.stored import Provenance, StoredWheel
from fleetbuild.store.wheels import Store

__all__ = [
    "IndexFile",
    "IndexSettings",
    "Provenance",
    "Store",
    "StoredWheel",
    "index_settings",
    "write_index",
]
