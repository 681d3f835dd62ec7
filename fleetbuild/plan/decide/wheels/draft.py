"""Draft the wheels of a plan: one for each target, which may serve several groups.

In: a grouped fleet, packages, facts. Out: a `PlanDraft`. `plan_wheel.py` adds keys and actions once
build requirements are locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

from packaging.utils import canonicalize_name

from fleetbuild.errors import BlockedError, ConfigError, RecipeError
from fleetbuild.models import Facts, LockedFile, Target
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.group_fleet import GroupedFleet
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import Package, versions_of
from fleetbuild.plan.decide.resolution import WheelId
from fleetbuild.plan.decide.wheels.builders import (
    Builders,
    builders_in_other_groups,
    choose_builders,
)
from fleetbuild.plan.decide.wheels.ids import wheel_version
from fleetbuild.plan.decide.wheels.published import PublishedChoice, PublishedChoices
from fleetbuild.recipes import RecipeInput
from fleetbuild.text import version_key
from fleetbuild.toolchains.constraints import joined
from fleetbuild.toolchains.cuda import Gcc, is_jetson
from fleetbuild.toolchains.pytorch import find_torch
from fleetbuild.toolchains.toolkits import (
    Toolkit,
    compiler_needed,
    lacking_libraries,
)


class DraftWheel(Frozen):
    """A wheel whose build requirements are not locked yet."""

    package: Package
    recipe_input: RecipeInput  # without compiler flags
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
    def id(self) -> WheelId:
        """The package and the first group, which no other wheel of a plan has."""
        return self.package.name, self.groups[0]

    @property
    def taken(self) -> LockedFile | None:
        """The published wheel that is used instead of a build, if any."""
        return self.published.file if self.published else None


def recipe_inputs(
    group: DraftGroup,
    packages: Sequence[Package],
    published: PublishedChoices = MappingProxyType({}),
) -> dict[str, RecipeInput]:
    """Return the input of each package's recipe for a group, in building order."""
    taken = [(name, each) for (name, of), each in published.items() if of == group.name]
    versions = {**versions_of(packages), **{name: each.version for name, each in taken}}
    found = {}
    for name, needed in building_order(packages).items():
        target, toolkit = group.wheel_targets[name], group.toolkit_for(name)
        cuda = toolkit.version if toolkit else None
        found[name] = RecipeInput(
            package=name,
            version=versions[name],
            wheel_version=wheel_version(versions[name], target, cuda),
            target=target,
            cuda=cuda,
            system_cudnn=_system_cudnn(group, versions.get("torch", "")) if toolkit else "",
            against={base: versions[base] for base in needed},
        )
    return found


def _system_cudnn(group: DraftGroup, torch: str) -> str:
    """Return the major version of cuDNN that all nodes of a group have and this torch accepts.

    Only Jetsons count: theirs comes with the JetPack, and no wheel of it exists.
    """
    if not any(map(is_jetson, group.target.sms)):
        return ""
    known = find_torch(torch)
    oldest = known.cudnn_from if known else None
    found = [node.toolchain.get("cudnn") or ("0",) for node in group.members.values()]
    having = [max(versions, key=version_key) for versions in found]
    majors = {version.partition(".")[0] for version in having}
    enough = all(version_key(oldest or "1") <= version_key(version) for version in having)
    return majors.pop() if enough and len(majors) == 1 else ""


class PlanDraft(GroupedFleet):
    """Groups and wheels, before build requirements are locked."""

    wheels: tuple[DraftWheel, ...]  # in building order


def draft_plan(
    fleet: GroupedFleet,
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    published: PublishedChoices = MappingProxyType({}),
) -> PlanDraft:
    """Return the draft for these groups, with every wheel that they need, once.

    `published` names wheels to take instead of building.
    """
    groups, preferred = fleet.groups, fleet.preferred
    by_name = {package.name: package for package in packages}
    inputs = {group.name: recipe_inputs(group, packages, published) for group in groups}
    made: dict[WheelId, DraftWheel] = {}  # by package and each group
    for name, needed in building_order(packages).items():
        by_build: dict[tuple[object, ...], list[DraftGroup]] = {}
        for group in groups:
            bases = tuple(made[base, group.name].id for base in needed)
            choice = published.get((name, group.name))
            taken = choice.file.sha256 if choice and choice.file else None
            cuda = inputs[group.name][name].cuda
            by_build.setdefault((group.wheel_targets[name], cuda, bases, taken), []).append(group)
        for groups_served in by_build.values():
            first = groups_served[0]
            against = tuple(made[base, first.name] for base in needed)
            target = _shared_target(name, groups_served)
            asked = preferred or builders_in_other_groups(target, groups_served, facts)
            able = [builder for builder in asked if _runs(facts.get(builder), against)]
            passed = _excluded_builders(
                target, against, [b for b in preferred if b not in able and first.nodes]
            )
            toolkit = _shared_toolkit(by_name[name], groups_served, facts)
            isa = target.isa if name == "torch" else ""
            gcc = compiler_needed(versions_of(packages), toolkit, isa)
            builders = choose_builders(
                target,
                groups_served,
                fleet.eligibility,
                facts,
                able,
                recipe=by_name[name].recipe,
                toolkit=toolkit,
                gcc=gcc,
            )
            if builders.problem:  # these groups together need an older libc than each alone
                raise BlockedError(*builders.problem)
            homes = (group.name for group in groups_served if builders.first.node in group.nodes)
            wheel = DraftWheel(
                package=by_name[name],
                recipe_input=inputs[first.name][name].model_copy(update={"target": target}),
                target=target,
                groups=tuple(group.name for group in groups_served),
                builders=builders.model_copy(update={"warnings": (*passed, *builders.warnings)}),
                home=next(homes, first.name),
                libstdcxx=_oldest_libstdcxx(groups_served),
                toolkit=toolkit,
                pytorch=first.pytorch,
                gcc=gcc,
                published=published.get((name, first.name)),
                against=against,
            )
            made |= {(name, group.name): wheel for group in groups_served}
    wheels = tuple({wheel.id: wheel for wheel in made.values()}.values())
    return PlanDraft(**dict(fleet), wheels=wheels)


def _oldest_libstdcxx(groups: Sequence[DraftGroup]) -> str | None:
    known = {facts.libstdcxx for group in groups for facts in group.members.values()}
    return min(filter(None, known), key=version_key, default=None)


def _shared_toolkit(
    package: Package, groups_served: Sequence[DraftGroup], facts: Mapping[str, Facts]
) -> Toolkit | None:
    """Return the groups' toolkit, with all builders that have it and the recipe's libraries."""
    found = [toolkit for group in groups_served if (toolkit := group.toolkit_for(package.name))]
    if not found:
        return None
    shared, libraries = found[0], package.recipe.toolkit_wheels
    having = {
        name: lacking_libraries(facts[name].for_builds, shared.version, libraries)
        for toolkit in found
        for name in toolkit.installed_on
    }
    lacks = (
        f" The one of {name} lacks {joined(missing, 'and')}."
        for name, missing in having.items()
        if missing
    )
    complete = tuple(name for name, missing in having.items() if not missing)
    return shared.model_copy(update={"installed_on": complete, "why": shared.why + "".join(lacks)})


def _shared_target(package: str, groups_served: Sequence[DraftGroup]) -> Target:
    """Return the target of a package for these groups, with the oldest libc among them."""
    target = groups_served[0].wheel_targets[package]
    floor = min((group.target.libc.floor for group in groups_served), key=version_key)
    return target.with_floor(floor)


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
