"""Nodes that a plan leaves out so that the rest of their group is served.

In: groups, sources and locked dependencies. Out: the problem of each such node. The caller
blocks them and groups again, before wheels are drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.models import Config, Inventory, LockedFile
from fleetbuild.models.problem import Problem
from fleetbuild.models.release import ENVIRONMENT_BYTES
from fleetbuild.plan.decide.groups import DraftGroup, libc_of
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.resolution import Resolution, Source
from fleetbuild.plan.decide.wheels.draft import recipe_inputs
from fleetbuild.plan.decide.wheels.published import PublishedChoice, PublishedChoices
from fleetbuild.recipes import GENERIC, render_not_buildable

_PUBLISHED = (
    "Take its published wheel where it runs: name it in a file for -r, or set build: {policy: auto}"
)
_ANOTHER = (
    "Ask for another version or a range: the newest of it that runs there is taken. Or leave these"
    " nodes out with fleetbuild_skip: true."
)


def is_built(
    package: Package,
    groups: Iterable[DraftGroup],
    packages: Sequence[Package],
    published: PublishedChoices,
) -> bool:
    """Return whether some group builds this package: no published wheel is taken, and it can be."""
    return any(
        not _is_taken(published.get((package.name, group.name)))
        and not render_not_buildable(package.recipe, recipe_inputs(group, packages)[package.name])
        for group in groups
    )


def nodes_without_build(
    inventory: Inventory,
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    sources: Mapping[str, Source],
    published: PublishedChoices,
) -> dict[str, Problem]:
    """Return the nodes for which a package cannot be built, each with its problem.

    If published wheels were looked for and none fits a group, only its members with the oldest libc
    are blocked: grouped again, the others may have one.
    """
    overrides = {node.name: node.sms for node in inventory.nodes if node.sms is not None}
    blocked: dict[str, Problem] = {}
    by_name = {package.name: package for package in packages}
    for group in groups:
        for name, recipe_input in recipe_inputs(group, packages).items():
            package, source = by_name[name], sources.get(name)
            choice = published.get((name, group.name))
            if _is_taken(choice):
                continue
            without = group.members if choice is None else _with_oldest_libc(group)
            if why := render_not_buildable(package.recipe, recipe_input):
                why = f"{package.name} {package.version} cannot be built for {group.name}: {why}."
                problem = Problem(f"{why}{_no_wheel(choice)}", _ANOTHER if choice else _PUBLISHED)
                blocked |= dict.fromkeys(without, problem)
            if source and source.gpu_code and package.recipe.name == GENERIC:
                problem = _without_recipe(package, source, choice)
                own = overrides if group.nodes else {}  # a host may be called like a target
                blocked |= {
                    member: problem
                    for member, facts in group.members.items()
                    if own.get(member, facts.sms)
                }
    return blocked


def nodes_blocking_dependencies(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution]
) -> dict[str, Problem]:
    """Return members that may be the only reason why their group has no dependencies: old libcs."""
    old_libc_nodes: dict[str, Problem] = {}
    for group in groups:
        answer = dependencies[group.name]
        if answer.problem is None or answer.offline:
            continue
        oldest = _with_oldest_libc(group)
        if len(oldest) < len(group.members):
            old_libc_nodes |= dict.fromkeys(oldest, answer.blocking(group.name))
    return old_libc_nodes


def nodes_without_space(
    groups: Sequence[DraftGroup],
    dependencies: Mapping[str, Resolution],
    published: PublishedChoices,
    config: Config,
) -> dict[str, Problem]:
    """Return the nodes whose disk cannot hold the release, each with the reason and the fix.

    A node that has a release of this name may have this one already: the plan only warns of it.
    """
    path = config.install.path
    found: dict[str, Problem] = {}
    for group in groups:
        taken = [choice.file for (_, name), choice in published.items() if name == group.name]
        needed = least_space((*filter(None, taken), *dependencies[group.name].wheels))
        for name in group.nodes:
            facts = group.members[name]
            has_release = config.release in facts.release or config.release in facts.previous
            if not has_release and (lack := facts.lacks_space(needed)):
                fix = (
                    "Free space there (df -h shows where) or set another install.path; then plan"
                    " again."
                )
                found[name] = Problem(f"The disk of {path} {lack} or more.", fix)
    return found


def least_space(files: Iterable[LockedFile]) -> int:
    """Return the bytes that a release of these files needs at least: unpacked, they are larger."""
    return ENVIRONMENT_BYTES + 2 * sum(file.size or 0 for file in files)


def _with_oldest_libc(group: DraftGroup) -> list[str]:
    floor = group.target.libc.floor
    return [name for name, facts in group.members.items() if libc_of(facts) == floor]


def _is_taken(choice: PublishedChoice | None) -> bool:
    return choice is not None and choice.file is not None


def _no_wheel(choice: PublishedChoice | None) -> str:
    """Return why no published wheel serves, as a further sentence."""
    return f" {choice.why}" if choice else ""


def _without_recipe(package: Package, source: Source, choice: PublishedChoice | None) -> Problem:
    return Problem(
        f"{package.name} has GPU code ({'; '.join(source.gpu_code)}) but no recipe, so it is "
        f"unknown how to build it for the node's GPUs.{_no_wheel(choice)}",
        f"Write recipes/{package.name}.yml beside fleetbuild.yml, with name: {package.name},"
        f" extends: generic, packages: [{package.name}] and cuda: true (docs/recipes.md). To build"
        " only for the CPU, set fleetbuild_sms: [] for the node.",
    )
