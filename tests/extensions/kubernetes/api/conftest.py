from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from tests.factories.cluster_api import FakeApi


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi().serving() as fake:
        yield fake


@pytest.fixture
def waits() -> list[float]:
    """What the client slept."""
    return []


@pytest.fixture
def client(api: FakeApi, tmp_path: Path, waits: list[float]) -> Iterator[Client]:
    access = find_access(api.kubeconfig(tmp_path))
    with Client(access, timeout=0.2, away=0, sleep=waits.append) as made:
        yield made
