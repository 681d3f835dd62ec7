"""Inventories that Ansible has read once already, for tests of what comes after that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fleetbuild.probe.inventory
from fleetbuild.ansible import Listing

_READ: dict[tuple[str, str, str | None], Listing] = {}


def remember_inventories(monkeypatch: pytest.MonkeyPatch, *sources: str, place: str = "") -> None:
    """Have Ansible read each of these once for all tests; it takes two starts of Ansible.

    `place` tells apart relative ones, where tests run in several folders.
    """
    reading = fleetbuild.probe.inventory.list_inventory

    def listing(
        source: str, *, on_start: Callable[[], None], limit: str | None, **more: Any
    ) -> Listing:
        if source not in sources:
            return reading(source, on_start=on_start, limit=limit, **more)
        key = (place, source, limit)
        if key not in _READ:
            _READ[key] = reading(source, on_start=on_start, limit=limit, **more)
        else:
            on_start()
        return _READ[key]

    monkeypatch.setattr(fleetbuild.probe.inventory, "list_inventory", listing)
