"""The order in which the packages of a release are built."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError, RecipeError
from fleetbuild.planning.packages import Package


def building_order(packages: Sequence[Package]) -> dict[str, tuple[str, ...]]:
    """Each package after those that it is built against, which are named with theirs included."""
    direct: dict[str, list[str]] = {
        package.name: [str(canonicalize_name(name)) for name in package.recipe.built_against]
        for package in packages
    }
    for package in packages:
        _refuse_missing(package, direct)
    order = _sorted(direct)
    whole: dict[str, tuple[str, ...]] = {}
    for name in order:
        needed = {each for base in direct[name] for each in (base, *whole[base])}
        whole[name] = tuple(each for each in order if each in needed)
    return whole


def _refuse_missing(package: Package, known: dict[str, list[str]]) -> None:
    missing = [name for name in known[package.name] if name not in known]
    if missing:
        raise ConfigError(
            f"{package.name} is built against {missing[0]}, which is not in this release.",
            f"Add {missing[0]}==VERSION to packages, of the version that it is to work with.",
        )


def _sorted(direct: dict[str, list[str]]) -> tuple[str, ...]:
    try:
        return tuple(TopologicalSorter(direct).static_order())
    except CycleError as problem:
        round_trip = " against ".join(reversed(problem.args[1]))
        raise RecipeError(
            f"No package of these can be built first: {round_trip}.",
            "Take one of them out of built_against in its recipe.",
        ) from None
