"""Groups of Windows nodes, and how their wheels are built there by hand.

In: an inventory, facts, the configuration, packages. Out: a `WindowsPlan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetbuild.config import base_folder
from fleetbuild.extensions.windows.hardware import arch_option, fits_toolset, refused_toolset
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, Facts, Inventory, Node, Target
from fleetbuild.models.problem import Problem
from fleetbuild.models.target import TargetLibc
from fleetbuild.plan.decide.eligibility import Eligibility, assess_hardware, wheel_rung
from fleetbuild.plan.decide.interpreters import NotEligible, choose_interpreter
from fleetbuild.plan.decide.packages import (
    Package,
    choose_packages,
    cuda_floors,
    parse_packages,
    versions_of,
)
from fleetbuild.plan.decide.wheels.draft import building_order
from fleetbuild.plan.decide.wheels.ids import wheel_version
from fleetbuild.plan.plan_fleet import fleet_pythons
from fleetbuild.plan.resolve.requested import requested_packages
from fleetbuild.plan.resolve.requirement_files import listed_packages
from fleetbuild.recipes import (
    Recipe,
    RecipeInput,
    known_recipes,
    render_libraries,
)
from fleetbuild.recipes.model import WindowsBuild
from fleetbuild.store.index_config import settings_of
from fleetbuild.store.wheels import Store
from fleetbuild.toolchains.nvidia import NvidiaWheels
from fleetbuild.toolchains.toolkits import Toolkit, choose_toolkit

_NO_LIBC = TargetLibc(family="glibc", floor="0")  # of no meaning here; no template sees it


@dataclass(frozen=True, kw_only=True)
class WindowsWheel:
    """One wheel, and what its recipe is rendered with for Microsoft's compiler (MSVC)."""

    package: Package
    recipe: Recipe  # with its values for Windows in place of those for Linux
    bundled: Mapping[str, tuple[str, ...]]  # folder of the source -> libraries to copy there
    given: RecipeInput
    cuda_why: str | None
    problem: str | None  # why it cannot be built by a script


@dataclass(frozen=True, kw_only=True)
class WindowsGroup:
    """Windows nodes with the same target, and how their wheels are built."""

    nodes: tuple[str, ...]
    target: Target
    interpreters: tuple[str, ...]  # paths on the nodes
    toolset_below: str | None  # the first MSVC toolset that the CUDA toolkit refuses
    wheels: tuple[WindowsWheel, ...]
    to_supply: tuple[str, ...]  # sentences: what the nodes lack for a build

    @property
    def name(self) -> str:
        """The name of the group: sm35-avx-cp310-win."""
        return f"{self.target.name}-win"

    @property
    def problem(self) -> str | None:
        """Why no script can build its wheels."""
        return next((wheel.problem for wheel in self.wheels if wheel.problem), None)


@dataclass(frozen=True)
class WindowsPlan:
    """The groups, why other nodes are in none, and warnings about nodes."""

    groups: tuple[WindowsGroup, ...]
    problems: Mapping[str, Problem]
    warnings: Mapping[str, tuple[str, ...]]


def windows_packages(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    config: Config,
    named: Sequence[str],
    store: Path,
) -> tuple[Package, ...]:
    """Return the packages as `fleetbuild plan` does. `named` replace the configuration's."""
    folder = base_folder(config, inventory)
    listed = listed_packages(config, folder)
    config = config.model_copy(update={"index": (*config.index, *listed.indexes)})
    texts = choose_packages(named or (*config.packages, *listed.requirements), config, inventory)
    pythons = fleet_pythons(config, facts)
    packages, _ = requested_packages(
        parse_packages(texts, pythons),
        Path.cwd() if named else folder,
        known_recipes([folder / "recipes"]),
        Store(store, settings_of(config, folder)),
        constraints=listed.constraints,
        pythons=pythons,
    )
    return packages


def plan_windows(
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> WindowsPlan:
    """Return the nodes with the same target as groups."""
    assessed = {
        node.name: _assess(node, facts[node.name], packages, config)
        for node in sorted(nodes, key=lambda node: node.name)
        if node.name in facts
    }
    eligible = {name: one for name, one in assessed.items() if isinstance(one, Eligibility)}
    members: dict[Target, dict[str, Facts]] = {}
    for name, one in eligible.items():
        members.setdefault(_target(one), {})[name] = facts[name]
    groups = (
        _group(
            target,
            known,
            {python.path for name in known if (python := eligible[name].python)},
            packages,
            config,
        )
        for target, known in members.items()
    )
    return WindowsPlan(
        groups=tuple(sorted(groups, key=lambda group: group.name)),
        problems={name: one for name, one in assessed.items() if isinstance(one, Problem)},
        warnings={name: one.warnings for name, one in eligible.items()},
    )


def _assess(
    node: Node, facts: Facts, packages: Sequence[Package], config: Config
) -> Eligibility | Problem:
    if facts.state != "ok":
        return Problem(facts.reason or "", facts.fix or "")
    wanted = node.python or config.python
    try:
        choose_interpreter(wanted, facts)
    except NotEligible as error:
        version = wanted if wanted and "\\" not in wanted else "3.11"
        fix = f"Install it (winget install Python.Python.{version}), or set fleetbuild_python."
        return error.problem._replace(fix=fix)
    try:
        return assess_hardware(
            facts, packages, config, isa=node.isa, sms=node.sms, python=node.python
        )
    except NotEligible as error:
        return error.problem


def _target(assessed: Eligibility) -> Target:
    assert assessed.rung and assessed.python  # assess_hardware sets both  # noqa: S101, PT018
    rung = RUNGS[assessed.rung]
    return Target(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=assessed.sms,
        python=assessed.python.tag,
        libc=_NO_LIBC,
    )


def _group(
    target: Target,
    members: Mapping[str, Facts],
    interpreters: set[str],
    packages: Sequence[Package],
    config: Config,
) -> WindowsGroup:
    toolkit: Toolkit | Problem | None = None
    if target.sms:
        toolkit = choose_toolkit(
            versions_of(packages),
            target.sms,
            target.python,
            list(members.values()),
            members,
            pin=config.cuda,
            floors=cuda_floors(packages),
        )
    by_name = {package.name: package for package in packages}
    wheels = tuple(
        _wheel(by_name[name], target, toolkit, config) for name in building_order(packages)
    )
    cuda = next((wheel.given.cuda for wheel in wheels if wheel.given.cuda), None)
    needs: dict[str, str] = {}
    for wheel in wheels:
        needs |= {} if wheel.problem else render_libraries(wheel.recipe, wheel.given)
    return WindowsGroup(
        nodes=tuple(members),
        target=target,
        interpreters=tuple(sorted(interpreters)),
        toolset_below=refused_toolset(cuda),
        wheels=wheels,
        to_supply=tuple(_to_supply(members, cuda, needs)),
    )


def _wheel(
    package: Package, group: Target, toolkit: Toolkit | Problem | None, config: Config
) -> WindowsWheel:
    recipe, build = package.recipe, package.recipe.windows
    rung = wheel_rung(recipe, RUNGS[group.isa], config) or RUNGS[group.isa]
    sms = recipe.sms_of(group.sms)
    target = group.model_copy(
        update={
            "isa": rung.name,
            "features": tuple(sorted(rung.features)),
            "sms": sms,
            "ptx": sms[-1] if sms and config.cuda_ptx else None,
            "blas": config.build.blas if recipe.offers(config.build.blas, group.arch) else None,
        }
    )
    chosen = toolkit if sms and isinstance(toolkit, Toolkit) else None
    cuda = chosen.version if chosen else None
    problem = None
    if sms and isinstance(toolkit, Problem):
        problem = f"{toolkit.reason} {toolkit.fix}"
    elif build is None:
        problem = f"The recipe {recipe.name} does not say how {package.name} is built on Windows."
    elif "@" in package.requirement:
        problem = f"The source of {package.name} is a local one, which a script cannot fetch."
    return WindowsWheel(
        package=package,
        recipe=_variant(recipe, build) if build else recipe,
        bundled=build.bundled if build else {},
        given=_WindowsInput(
            package=package.name,
            version=package.version,
            wheel_version=wheel_version(package.version, target, cuda),
            target=target,
            cuda=cuda,
            flags=arch_option(rung),
        ),
        cuda_why=chosen.why if chosen else None,
        problem=problem,
    )


def _variant(recipe: Recipe, build: WindowsBuild) -> Recipe:
    """Return the recipe with the values for Windows in place of those for Linux."""
    return recipe.model_copy(
        update={
            "environment": {"CFLAGS": "", "CXXFLAGS": "", **build.environment},  # "": not set
            "config_settings": build.config_settings,
            "files": build.files,
            "patches": (*recipe.patches, *build.patches),
            "system_libraries": build.system,
        }
    )


class _WindowsInput(RecipeInput):
    """One wheel to build on Windows. It brings NVIDIA's libraries itself."""

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of a template."""
        return {
            **super().variables,
            "os": "windows",
            "libc": "ucrt",
            "target": {**self.target.model_dump(exclude={"libc"}), "os": "windows"},
            "cuda_wheels": NvidiaWheels(),
            "cuda_home": "@cuda@",  # a placeholder, which the script replaces
        }


def _to_supply(
    members: Mapping[str, Facts], cuda: str | None, needs: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each thing that a build needs and a member lacks."""
    first = refused_toolset(cuda)
    wanted, such = "MSVC", ""
    if first:
        wanted = f"MSVC older than {first}, and CUDA {cuda} refuses newer ones"
        such = ", with such a toolset"
    for name, known in members.items():
        tools = known.toolchain
        if not any(fits_toolset(version, cuda) for version in tools.get("msvc", ())):
            has = f" It has {', '.join(tools['msvc'])}." if "msvc" in tools else ""
            yield (
                f"{name} has no {wanted}: install Visual Studio 2019 or newer, or its Build Tools"
                f"{such}.{has}"
            )
        nvcc = [".".join(version.split(".")[:2]) for version in tools.get("nvcc", ())]
        if cuda and cuda not in nvcc:
            yield f"{name} has no CUDA toolkit {cuda}."
        if "git" not in tools:
            yield f"{name} has no git, which fetches sources and applies patches."
        yield from (f"{name}: {sentence}" for tool, sentence in needs.items() if tool not in tools)
