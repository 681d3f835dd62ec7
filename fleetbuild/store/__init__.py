"""Packages on the controller: resolve and fetch dependencies, and store built wheels."""

from fleetbuild.store.index import write_index
from fleetbuild.store.index_config import IndexSettings, index_settings
from fleetbuild.store.stored import StoredWheel, WheelRecord
from fleetbuild.store.wheels import Store

__all__ = [
    "IndexSettings",
    "Store",
    "StoredWheel",
    "WheelRecord",
    "index_settings",
    "write_index",
]
