"""Find what to take in place of a wheel that dies: another version, or a build.

In: a package, a kind of machine, and a judge of files. Out: the newest and the nearest older
versions that run there, and the recipe that builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleetbuild.models import LockedFile
from fleetbuild.plan.check.kinds import Kind
from fleetbuild.plan.resolve.uv import find_wheels
from fleetbuild.recipes import GENERIC, find_recipe
from fleetbuild.store.index_config import IndexSettings

_OLDER = 5  # versions that are read before the search ends


def find_instead(
    file: LockedFile,
    kind: Kind,
    runs: Callable[[LockedFile], bool],
    settings: IndexSettings,
) -> tuple[str, ...]:
    """Return the newest and the nearest older version that run, then how to build this one."""
    found = []
    newest = _best(file.name, kind, (), settings)
    if newest and newest.version != file.version and runs(newest):
        found.append(newest)
    older = next((one for one in _older(file, kind, settings) if runs(one)), None)
    if older and older not in found:
        found.append(older)
    return (*(f"{one.name}=={one.version}" for one in found), *how_to_build(file.name))


def how_to_build(name: str) -> tuple[str, ...]:
    """Return the recipe that builds this package; empty if only the generic one does."""
    recipe = find_recipe(name)
    return () if recipe.name == GENERIC else (f"build it: recipe {recipe.name}",)


def _older(file: LockedFile, kind: Kind, settings: IndexSettings) -> Iterator[LockedFile]:
    """Yield the published wheels of earlier versions, nearest first."""
    version = file.version
    for _ in range(_OLDER):
        one = _best(file.name, kind, (f"{file.name}<{version.partition('+')[0]}",), settings)
        if one is None:
            return
        yield one
        version = one.version


def _best(
    name: str, kind: Kind, constraints: tuple[str, ...], settings: IndexSettings
) -> LockedFile | None:
    request = kind.request([name]).model_copy(update={"constraints": constraints})
    wheels = find_wheels([request], settings)[request].wheels
    return wheels[0] if wheels else None
