"""Which versions of ansible-core fleetbuild was tried with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

NEWEST = (2, 22)  # tried: 2.18 to 2.21, and the release candidate of 2.22


def untried_core(core: str | None = None) -> str:
    """Return a sentence if this ansible-core, or the installed one, is newer; else empty."""
    try:
        core = core or version("ansible-core")
        major, minor = (int(part) for part in core.split(".")[:2])
    except (PackageNotFoundError, ValueError):  # a program elsewhere on PATH
        return ""
    if (major, minor) <= NEWEST:
        return ""
    newest = ".".join(map(str, NEWEST))
    return (
        f"ansible-core {core} is newer than any that fleetbuild was tried with. If a run fails in"
        f" Ansible, install {newest}: pip install 'ansible-core=={newest}.*'"
    )
