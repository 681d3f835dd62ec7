"""Draft the wheels of a plan: one for each target, which may serve several groups.

In: packages, groups, eligibility, facts. Out: `DraftWheel`s, in building order. `plan_wheel.py`
adds keys and actions once the locks are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

from packaging.utils import canonicalize_name

from fleetbuild.errors import BlockedError, ConfigError, RecipeError
from fleetbuild.hardware.cuda import Gcc
from fleetbuild.models import Facts, LockedFile, Target
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.compatibility.toolkits import Toolkit, compiler_needed
from fleetbuild.plan.decide.eligibility import Eligibility
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import Package, bracketed, versions_of
from fleetbuild.plan.decide.wheels.builders import (
    Builders,
    builders_in_other_groups,
    choose_builders,
)
from fleetbuild.plan.decide.wheels.keys import wheel_version
from fleetbuild.plan.decide.wheels.published import PublishedChoice, PublishedChoices
from fleetbuild.recipes import RecipeInput
from fleetbuild.text import version_key


class DraftWheel(Frozen):
    """A wheel whose build requirements are not locked yet."""

    package: Package
    target: Target
    groups: tuple[str, ...]  # names of the groups that get it
    builders: Builders
    home: str  # the group of the first builder
    libstdcxx: str | None = None  # the oldest among their nodes
    toolkit: Toolkit | None = None
    pytorch: str | None = None  # PyTorch's own index for its groups
    published: PublishedChoice | None = None  # None: published wheels were not searched
    gcc: Gcc | None = None  # the gcc versions that can build it; None: any
    against: tuple[DraftWheel, ...] = ()  # wheels in the build environment; this one pins them

    @property
    def taken(self) -> LockedFile | None:
        """The published wheel that is used instead of a build, if any."""
        return self.published.file if self.published else None


def draft_wheels(
    packages: Sequence[Package],
    groups: Sequence[DraftGroup],
    eligibility: Mapping[str, Eligibility],
    facts: Mapping[str, Facts],
    preferred: Sequence[str],
    *,
    published: PublishedChoices = MappingProxyType({}),
) -> tuple[DraftWheel, ...]:
    """Return every wheel that these groups need, once, in building order."""
    by_name = {package.name: (index, package) for index, package in enumerate(packages)}
    made: dict[tuple[str, str], DraftWheel] = {}  # by package and group
    for name, needed in building_order(packages).items():
        index, package = by_name[name]
        by_build: dict[tuple[object, ...], list[DraftGroup]] = {}
        for group in groups:
            bases = tuple(id(made[each, group.name]) for each in needed)
            toolkit = _toolkit_of(group, index)
            cuda = toolkit.version if toolkit else None
            choice = published.get((name, group.name))
            taken = choice.file.sha256 if choice and choice.file else None
            key = (group.wheel_targets[index], cuda, bases, taken)
            by_build.setdefault(key, []).append(group)
        for groups_served in by_build.values():
            against = tuple(made[each, groups_served[0].name] for each in needed)
            target = _shared_target(index, groups_served)
            asked = preferred or builders_in_other_groups(target, groups_served, facts)
            able = [each for each in asked if _runs(facts.get(each), against)]
            stand_in = eligibility[groups_served[0].nodes[0]].stand_in
            passed = _excluded_builders(
                target, against, [each for each in preferred if each not in able and not stand_in]
            )
            toolkit = _shared_toolkit(index, groups_served)
            gcc = compiler_needed(versions_of(packages), toolkit)
            builders = choose_builders(
                target, groups_served, eligibility, facts, able, toolkit=toolkit, gcc=gcc
            )
            if builders.problem:  # these groups together need an older libc than each alone
                raise BlockedError(*builders.problem)
            homes = (group.name for group in groups_served if builders.first in group.nodes)
            wheel = DraftWheel(
                package=package,
                target=target,
                groups=tuple(group.name for group in groups_served),
                builders=builders.model_copy(update={"warnings": (*passed, *builders.warnings)}),
                home=next(homes, groups_served[0].name),
                libstdcxx=_oldest_libstdcxx(groups_served, facts),
                toolkit=toolkit,
                pytorch=groups_served[0].pytorch,
                gcc=gcc,
                published=published.get((name, groups_served[0].name)),
                against=against,
            )
            made |= {(name, group.name): wheel for group in groups_served}
    return tuple({id(wheel): wheel for wheel in made.values()}.values())


def _oldest_libstdcxx(groups: Sequence[DraftGroup], facts: Mapping[str, Facts]) -> str | None:
    known = {facts[name].libstdcxx for group in groups for name in group.nodes}
    return min(filter(None, known), key=version_key, default=None)


def _toolkit_of(group: DraftGroup, index: int) -> Toolkit | None:
    return group.toolkit if group.wheel_targets[index].sms else None


def _shared_toolkit(index: int, groups_served: Sequence[DraftGroup]) -> Toolkit | None:
    """Return the groups' toolkit, with all builders that have it."""
    found = [toolkit for group in groups_served if (toolkit := _toolkit_of(group, index))]
    if not found:
        return None
    having = dict.fromkeys(name for toolkit in found for name in toolkit.installed_on)
    return found[0].model_copy(update={"installed_on": tuple(having)})


def _shared_target(index: int, groups_served: Sequence[DraftGroup]) -> Target:
    """Return the target of a package for these groups, with the oldest libc among them."""
    target = groups_served[0].wheel_targets[index]
    floor = min((group.target.libc.floor for group in groups_served), key=version_key)
    return target.model_copy(update={"libc": target.libc.model_copy(update={"floor": floor})})


def _runs(facts: Facts | None, wheels: Sequence[DraftWheel]) -> bool:
    """Return whether a named builder can import the wheels that another is built against."""
    needed = {feature for wheel in wheels for feature in wheel.target.features}
    return facts is None or needed <= set(facts.features)


def _excluded_builders(
    target: Target, wheels: Sequence[DraftWheel], names: Sequence[str]
) -> tuple[str, ...]:
    bases = " and ".join(wheel.package.name for wheel in wheels)
    return tuple(
        f"{name} is named as a builder but cannot build for {target.name}: it cannot run the "
        f"wheel of {bases} that this wheel is built against."
        for name in names
    )


def published_in(group: DraftGroup, wheels: Sequence[DraftWheel]) -> tuple[str, ...]:
    """Return the packages that a group installs from published wheels, as name==version."""
    mine = (wheel for wheel in wheels if group.name in wheel.groups)
    return tuple(sorted(f"{each.package.name}{bracketed(each.package.extras)}=={file.version}"
                        for each in mine if (file := each.taken)))  # fmt: skip


def recipe_input(wheel: DraftWheel, flags: str = "") -> RecipeInput:
    """Return the wheel as the input of its recipe."""
    version = wheel.package.version
    cuda = wheel.toolkit.version if wheel.toolkit else None
    return RecipeInput(
        package=wheel.package.name,
        version=version,
        wheel_version=wheel_version(version, wheel.target, cuda),
        target=wheel.target,
        cuda=cuda,
        flags=flags,
        against={base.package.name: base.package.version for base in wheel.against},
    )


def building_order(packages: Sequence[Package]) -> dict[str, tuple[str, ...]]:
    """Return packages in building order, each with all packages that it is built against."""
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
            f"Add {missing[0]}==VERSION to packages, with the version that it should work with.",
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
