"""Sdists from the package index, for builds that a test makes itself."""

from __future__ import annotations

from pathlib import Path

from fleetbuild.models import TargetLibc
from fleetbuild.plan.decide.resolution import LockRequest
from fleetbuild.plan.resolve.uv import locate
from fleetbuild.store.index_config import index_settings
from fleetbuild.store.wheels import Store


def fetch_sdist(name: str, version: str, folder: Path, python: str = "3.11") -> Path:
    """Fetch an sdist into `folder` without running its setup.py, which may import torch."""
    store = Store(folder, index_settings([], folder))
    request = LockRequest(
        requirements=(f"{name}=={version}",),
        sources=(name,),
        python_version=f"{python}.0",
        python=f"cp{python.replace('.', '')}",
        arch="x86_64",
        libc=TargetLibc(family="glibc", floor="2.36"),
    )
    return store.fetch(locate(request, store.settings).sources[0])
